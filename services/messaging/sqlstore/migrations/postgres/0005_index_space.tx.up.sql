-- additive
-- The end of a delivery writes a new version of its row with an entry in each of these indexes, beside that of the old version.
-- Keys of new rows grow, so that pages would be filled at the insert and split at the end, each of them.
ALTER INDEX sys_http_delivery_pkey SET (fillfactor = 50);
ALTER INDEX sys_http_delivery_dedup SET (fillfactor = 50);
ALTER INDEX sys_http_delivery_created SET (fillfactor = 50);
