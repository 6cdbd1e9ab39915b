"""Search on streams: texts as terms, queries in words, and which documents meet which queries."""
