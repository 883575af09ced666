-- What clients may send is checked here, other versions of the code are served, and large deletions go in slices. Each part
-- has a heading; tables are distributed where the others are (docs/scale-out.md).

-- ---- functions -------------------------------------------------------------------------------------------------------
-- A database with schema 10 gets the current functions. A function that gets another result or other parameters is dropped
-- here first; one with new parameters keeps its earlier form for code of the version before (docs/upgrading.md).
