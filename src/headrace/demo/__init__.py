"""The demos: complete programs on real input. Each one shows what came out and checks it by counting in another way."""
