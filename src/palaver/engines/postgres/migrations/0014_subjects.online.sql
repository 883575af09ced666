-- step: restrict_items
SELECT palaver.restrict_writes('items');

-- step: restrict_item_sources
SELECT palaver.restrict_writes('item_sources');
