"""The HTML edge: pages for people, over the same functions as the JSON edges. They do nothing that the API can't."""
