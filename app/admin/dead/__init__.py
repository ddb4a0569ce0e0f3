"""/admin/topics/{topic}/dead: what is out of a queue, by kind and one by one; requeues and purges of it."""
