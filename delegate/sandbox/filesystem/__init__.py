"""Reads, writes, lists, copies and searches files where others may have put anything."""
