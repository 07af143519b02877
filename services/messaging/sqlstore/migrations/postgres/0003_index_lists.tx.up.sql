CREATE INDEX sys_http_delivery_list_failed
    ON sys_http_delivery (created_at NULLS FIRST, id, organization_id) WHERE status = 'failed';

CREATE INDEX sys_http_delivery_list_dead
    ON sys_http_delivery (created_at NULLS FIRST, id, organization_id) WHERE status = 'dead';
