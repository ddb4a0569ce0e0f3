"""The hot routes: enqueue, claim, ack, nack, fail, extend, and the work stream."""
