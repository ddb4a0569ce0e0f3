"""Thumbnails of all pictures in a folder, on all processors: python thumbnails.py FOLDER"""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from holdfast import Dead, Isolation, Queue, Result, TopicConfig, Worker

SIZE = (256, 256)

queue = Queue()  # HOLDFAST_URL, or http://127.0.0.1:8080


@dataclass
class Picture:
    path: str
    thumbnail: str


# A picture that kills its process, and those beside it, are run again: each apart, with a bound on memory.
@queue.handler("thumbnails", pool="process", concurrency=os.cpu_count() or 1, retry=(1, 10), isolate=Isolation())
def shrink(picture: Picture) -> Result:
    try:
        with Image.open(picture.path) as image:
            image.thumbnail(SIZE)
            # A job may be done twice, so the thumbnail comes at once or not at all.
            fresh = f"{picture.thumbnail}.{os.getpid()}"
            image.convert("RGB").save(fresh, "JPEG")
            Path(fresh).replace(picture.thumbnail)
            return Result(image.size)
    except UnidentifiedImageError:
        raise Dead("no picture") from None  # trying again will not help


async def main(files: list[Path], thumbnails: Path) -> None:
    async with queue:
        topic = queue.client.topic("thumbnails")
        await topic.put(TopicConfig(on_exhausted="fail", max_deliveries=5))
        pictures = [Picture(str(path), str(thumbnails / f"{path.name}.jpg")) for path in files]
        seqs = [int(await queue.get("thumbnails").push(picture)) for picture in pictures]

        worker = Worker(queue)
        running = asyncio.create_task(worker.run())
        for path, seq in zip(files, seqs, strict=True):
            while (end := await topic.result(seq, wait_ms=60_000)).state == "pending":
                pass
            print(f"{path.name}: {end.error or 'x'.join(map(str, end.result))}")
        worker.stop()
        await running


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    thumbnails = folder / "thumbnails"
    thumbnails.mkdir(exist_ok=True)
    asyncio.run(main(sorted(path for path in folder.iterdir() if path.is_file()), thumbnails))
