CREATE INDEX sys_http_delivery_list_failed
    ON sys_http_delivery (created_at, id, organization_id) WHERE status = 'failed';

CREATE INDEX sys_http_delivery_list_dead
    ON sys_http_delivery (created_at, id, organization_id) WHERE status = 'dead';

CREATE INDEX sys_http_delivery_list_pending
    ON sys_http_delivery (created_at, id, organization_id) WHERE status = 'pending';

CREATE INDEX sys_http_delivery_list_in_flight
    ON sys_http_delivery (created_at, id, organization_id) WHERE status = 'in_flight';
