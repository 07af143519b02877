-- One process holds everything: the lock of the file is its lease.
SELECT 1;
