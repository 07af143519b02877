-- additive
-- The status itself is in no index: claims change it.
CREATE INDEX sys_http_delivery_list_failed
    ON sys_http_delivery (created_at NULLS FIRST, id, organization_id) WHERE ended_as = 'failed';

CREATE INDEX sys_http_delivery_list_dead
    ON sys_http_delivery (created_at NULLS FIRST, id, organization_id) WHERE ended_as = 'dead';
