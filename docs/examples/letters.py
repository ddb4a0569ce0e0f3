"""Receipts by e-mail, one for each order: python letters.py

Letters go to the mail server at SMTP_HOST, as mail.example.com:25. Without one, this prints them."""

import asyncio
import os
import smtplib
from dataclasses import dataclass
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Debugging

from holdfast import Dead, Queue, Result, TopicConfig, Worker

DAY_MS = 24 * 3600 * 1000
HOST, _, PORT = os.environ.get("SMTP_HOST", "127.0.0.1:8025").partition(":")

queue = Queue()  # HOLDFAST_URL, or http://127.0.0.1:8080


@dataclass
class Receipt:
    order: int
    to: str


async def order_was_paid(order: int, to: str) -> int:
    """Enqueue one receipt for an order, however often this is called. Returns the job's number."""
    return int(await queue.get("receipts").dedupe(f"order {order}").push(Receipt(order, to)))


@queue.handler("receipts", concurrency=4, timeout=30, retry=(5, 60, 600))
def send(receipt: Receipt) -> Result:
    letter = EmailMessage()
    letter["From"] = "shop@example.com"
    letter["To"] = receipt.to
    letter["Subject"] = f"Your order {receipt.order}"
    # The same at each try: should this process die before its ack, mail programs show one letter, not two.
    letter["Message-ID"] = f"<receipt-{receipt.order}@example.com>"
    letter.set_content("Thank you.")
    try:
        with smtplib.SMTP(HOST, int(PORT or 25), timeout=20) as server:
            server.send_message(letter)
    except smtplib.SMTPRecipientsRefused as refused:
        [(code, why)] = refused.recipients.values()
        if code >= 500:
            raise Dead(f"{code} {why.decode()}") from None  # there is no such address: no use in trying again
        raise
    return Result(letter["Message-ID"])


async def main() -> None:
    async with queue:
        receipts = queue.client.topic("receipts")
        await receipts.put(TopicConfig(dedupe_window_ms=DAY_MS, on_exhausted="fail"))
        # The bank calls twice.
        paid = {await order_was_paid(7, "ada@example.com") for _ in range(2)}

        worker = Worker(queue)
        running = asyncio.create_task(worker.run())
        for seq in paid:
            while (end := await receipts.result(seq, wait_ms=60_000)).state == "pending":
                pass
            print(f"job {seq}: {end.state}, {end.error or end.result}")
        worker.stop()
        await running


if __name__ == "__main__":
    if "SMTP_HOST" not in os.environ:
        Controller(Debugging(), hostname=HOST, port=int(PORT)).start()
    asyncio.run(main())
