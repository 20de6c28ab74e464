"""The kit of the browser tests: a shop with a history, its server, and a browser that watches."""
