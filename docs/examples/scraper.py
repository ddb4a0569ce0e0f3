"""Every page of a site, five a second at most: python scraper.py URL

Without a URL it serves a site of its own and reads that."""

import asyncio
import sys
import time
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urldefrag, urljoin

import httpx

from holdfast import Queue, Retry, TopicConfig, Worker

PER_SECOND = 5  # for all workers together, however many there are
DAY_MS = 24 * 3600 * 1000

queue = Queue()  # HOLDFAST_URL, or http://127.0.0.1:8080
browser = httpx.AsyncClient(timeout=20, follow_redirects=True)
began = time.monotonic()


@queue.handler("pages", timeout=60, retry=(1, 10, 60))
async def read(url: str) -> Retry | None:
    page = await browser.get(url)
    if page.status_code in (429, 503):
        return Retry(float(page.headers.get("Retry-After", 10)), page.reason_phrase)
    page.raise_for_status()
    print(f"{time.monotonic() - began:5.1f} s  {url}", flush=True)
    for link in links(page.text):
        found = urldefrag(urljoin(str(page.url), link)).url
        if httpx.URL(found).host == page.url.host:
            await visit(found)
    return None


async def visit(url: str) -> None:
    """Once a day, however many pages link to it, and whichever worker meets the link."""
    await queue.get("pages").dedupe(url).push(url)


def links(text: str) -> list[str]:
    found: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(value for name, value in attrs if tag == "a" and name == "href" and value)

    Links().feed(text)
    return found


async def main(url: str) -> None:
    async with queue, browser:
        pages = queue.client.topic("pages")
        await pages.put(TopicConfig(throughput_limit=PER_SECOND, dedupe_window_ms=DAY_MS))
        await visit(url)
        worker = Worker(queue)
        running = asyncio.create_task(worker.run())
        # A page's links are in before it is done: once nothing is left, everything was read.
        while (left := await pages.explain()) and (left.claimable or left.scheduled or left.in_flight):
            await asyncio.sleep(0.5)
        worker.stop()
        await running


class Site(BaseHTTPRequestHandler):
    """Twenty pages, each with links to the next three."""

    def do_GET(self) -> None:
        page = int(self.path.strip("/") or 0)
        text = "".join(f'<a href="/{(page + step) % 20}">on</a> ' for step in (1, 2, 3))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    if len(sys.argv) > 1:
        start = sys.argv[1]
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
        Thread(target=server.serve_forever, daemon=True).start()
        start = f"http://127.0.0.1:{server.server_port}/0"
    asyncio.run(main(start))
