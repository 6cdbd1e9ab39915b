"""What the connectors of single messages share: decoding and acknowledging, rendering, addresses, full buffers."""
