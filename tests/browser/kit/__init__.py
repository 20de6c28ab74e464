"""What the browser tests share: a shop with a history, its server, and a browser that watches."""
