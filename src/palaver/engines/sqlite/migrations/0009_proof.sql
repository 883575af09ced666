-- Proof of what reaches a prompt, and what other changes of this release need. Each part has a heading.

