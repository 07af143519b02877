import assert from 'node:assert/strict';
import { eventually, refused } from '../harness.mjs';
import { signature } from '../receiver.mjs';

// Webhooks and what becomes of their deliveries.
export default async function ({ check, user: client, object, tag, wire, receiver, state }) {
  const path = `/calls${tag}`;
  const url = receiver.base + path;
  const requests = (recordID) => receiver.requests.filter((r) => r.path === path && r.body.includes(recordID));
  let hook;
  await check('webhooks/create sys_webhook', async () => {
    const r = await client.data.create('sys_webhook', {
      name: `calls_${tag}`, label: 'Calls', object_name: object, triggers: ['create', 'update', 'delete'], url, method: 'post', active: true,
      definition_json: '{"timeoutMs":2000}', signing_secret: 'topsecret', headers_secret: '{"X-Team":"crm"}',
    });
    hook = r.id;
    const { record } = await client.data.get('sys_webhook', hook);
    assert.equal(/topsecret|crm/.test(JSON.stringify(record)), false);
    assert.deepEqual([record.managed_by, record.customized], ['admin', false]);
  });
  const another = (more) => () => client.data.create('sys_webhook', { name: `calls_${tag}_x`, url, active: true, definition_json: '{}', ...more });
  await check('webhooks/headers must be a flat string map', () => refused(another({ headers_secret: '{"X-A":5}' }), 400, 'VALIDATION_ERROR'));
  await check('webhooks/unknown trigger', () => refused(another({ triggers: ['undelete'] }), 400, 'VALIDATION_FAILED'));
  let delivery;
  await check('webhooks/deliveries for create, update, delete', async () => {
    const { id } = await client.data.create(object, { name: `Hook calls${tag}`, annual_revenue: 5 });
    await client.data.update(object, id, { annual_revenue: 6 });
    await client.data.delete(object, id);
    const got = await eventually('three deliveries', () => requests(id).length === 3 && requests(id));
    assert.deepEqual(got.map((r) => [r.headers['x-objectstack-event'], r.json.object, r.json.recordId, r.json.action]),
      ['created', 'updated', 'deleted'].map((action) => [`data.record.${action}`, object, id, action]));
    for (const r of got) {
      assert.equal(r.headers['x-objectstack-signature'], signature('topsecret', r.body));
      assert.deepEqual([r.headers['x-team'], r.headers['content-type'], r.headers['user-agent'], r.headers['x-objectstack-attempt']], ['crm', 'application/json', 'ObjectStack-Http/1.0', '1']);
    }
    assert.deepEqual([got[1].json.changes.annual_revenue, got[1].json.after.annual_revenue], [6, 6]);
    state.event = got[0].json;
    delivery = got[0].headers['x-objectstack-delivery'];
  });
  const row = (id, status) => eventually(`the row is ${status}`, async () => {
    const { record } = await client.data.get('sys_http_delivery', id);
    return record.status === status && record;
  });
  await check('webhooks/delivery row', async () => {
    const r = await row(delivery, 'success');
    assert.deepEqual([r.source, r.ref_id, r.method, r.attempts, r.response_code], ['webhook', hook, 'POST', 1, 200]);
    assert.ok(r.dedup_key.startsWith(`${hook}:${object}:`));
  });
  await check('webhooks/sys_http_delivery is read-only', () => refused(() => client.data.create('sys_http_delivery', { url: 'x' }), 405, 'OBJECT_API_METHOD_NOT_ALLOWED'));
  const redeliver = async (body, options = {}) => {
    const r = await wire.send('POST', '/api/v1/webhooks/redeliver', { body, ...options });
    return [r.status, r.body.error?.code ?? r.body.data];
  };
  await check('webhooks/redeliver', async () => {
    const before = receiver.requests.length;
    assert.deepEqual(await redeliver({ deliveryId: delivery }), [200, { id: delivery, status: 'pending' }]);
    const again = await eventually('it is sent again', () => receiver.requests.slice(before).find((r) => r.headers['x-objectstack-delivery'] === delivery));
    assert.equal(again.headers['x-objectstack-attempt'], '1');
  });
  await check('webhooks/redeliver refusals', async () => {
    assert.deepEqual(await redeliver({ deliveryId: 'x' }, { anonymous: true }), [401, 'UNAUTHENTICATED']);
    assert.deepEqual(await redeliver({}), [400, 'MISSING_REQUIRED_FIELD']);
    assert.deepEqual(await redeliver('{bad'), [400, 'INVALID_REQUEST']);
    assert.deepEqual(await redeliver({ deliveryId: 'nope' }), [404, 'RESOURCE_NOT_FOUND']);
  });
  let dead;
  await check('webhooks/500 is retried, 400 is dead', async () => {
    receiver.answer(path, 500, 400);
    const { id } = await client.data.create(object, { name: `Err calls${tag}` });
    const two = await eventually('a second attempt', () => requests(id).length === 2 && requests(id));
    assert.deepEqual(two.map((r) => r.headers['x-objectstack-attempt']), ['1', '2']);
    assert.equal(two[0].headers['x-objectstack-delivery'], two[1].headers['x-objectstack-delivery']);
    dead = two[0].headers['x-objectstack-delivery'];
    const r = await row(dead, 'dead');
    assert.deepEqual([r.attempts, r.response_code, r.error], [2, 400, 'HTTP 400']);
    receiver.answer(path, 200);
  });
  await check('webhooks/redeliver after the webhook is gone', async () => {
    await client.data.delete('sys_webhook', hook);
    assert.deepEqual(await redeliver({ deliveryId: dead }), [409, 'DELIVERY_NOT_ELIGIBLE']);
  });
}
