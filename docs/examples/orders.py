"""A shop whose orders and jobs are written together: python orders.py

DATABASE_URL is the service's own database: the shop's tables are in it, too."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import uvicorn
from fastapi import FastAPI, HTTPException

from holdfast import AsyncContext, Queue, Worker, sql

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.stock (item text PRIMARY KEY, left_over integer NOT NULL CHECK (left_over >= 0));
CREATE TABLE IF NOT EXISTS shop.orders (id serial PRIMARY KEY, item text NOT NULL, state text NOT NULL DEFAULT 'new');
INSERT INTO shop.stock VALUES ('lamp', 3) ON CONFLICT DO NOTHING;
"""

queue = Queue()  # HOLDFAST_URL, or http://127.0.0.1:8080


@dataclass
class Shipment:
    order: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], max_size=10) as pool, queue:
        app.state.pool = pool
        await pool.execute(SCHEMA)
        await queue.client.topic("shipping").put()
        worker = Worker(queue)  # beside the routes, as both are small
        running = asyncio.create_task(worker.run(signals=False))
        yield
        worker.stop()
        await running


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def order(item: str) -> dict[str, int]:
    """An order and its job, or neither: when the last lamp is gone, what was written before is rolled back."""
    try:
        async with app.state.pool.acquire() as db, db.transaction():
            number = await db.fetchval("INSERT INTO shop.orders (item) VALUES ($1) RETURNING id", item)
            await db.fetchval(*sql.enqueue("shipping", Shipment(number)).asyncpg)
            await db.execute("UPDATE shop.stock SET left_over = left_over - 1 WHERE item = $1", item)
    except asyncpg.CheckViolationError:
        raise HTTPException(409, f"there is no {item} any more") from None
    return {"order": number}


@app.get("/orders/{number}")
async def state(number: int) -> dict[str, str]:
    found = await app.state.pool.fetchval("SELECT state FROM shop.orders WHERE id = $1", number)
    if found is None:
        raise HTTPException(404, "no such order")
    return {"state": found}


@queue.handler("shipping")
async def ship(shipment: Shipment, context: AsyncContext) -> None:
    """The order is shipped if and only if the job is done, whatever happens in between."""
    done = sql.complete(context.token)
    async with app.state.pool.acquire() as db, db.transaction():
        await db.execute("UPDATE shop.orders SET state = 'shipped' WHERE id = $1", shipment.order)
        await db.fetchval(*done.asyncpg)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
