-- additive
-- The status is in no index that claims would have to change with it. In those of rows that have ended it spares the count
-- of a list the way to the rows.
CREATE INDEX sys_http_delivery_list_failed
    ON sys_http_delivery (created_at, id, organization_id, status) WHERE ended_as = 'failed';

CREATE INDEX sys_http_delivery_list_dead
    ON sys_http_delivery (created_at, id, organization_id, status) WHERE ended_as = 'dead';

CREATE INDEX sys_http_delivery_list_live
    ON sys_http_delivery (created_at, id, organization_id) WHERE finished_at IS NULL;
