"""The demo `auctions`: generated bids, some of them late."""
