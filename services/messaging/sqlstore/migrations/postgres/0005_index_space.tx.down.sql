ALTER INDEX sys_http_delivery_created RESET (fillfactor);
ALTER INDEX sys_http_delivery_dedup RESET (fillfactor);
ALTER INDEX sys_http_delivery_pkey RESET (fillfactor);
