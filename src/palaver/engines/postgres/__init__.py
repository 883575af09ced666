"""Postgres: one SQL contract, reached over asyncpg or over Supabase."""
