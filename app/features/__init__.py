"""What is built on the queue, each under one roof: its routes, pages, loops and statements."""
