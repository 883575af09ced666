"""Uploaded files: accepted kinds, unpacked sizes, extracted text, storage. Their content is never trusted."""
