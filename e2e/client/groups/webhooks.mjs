import assert from 'node:assert/strict';
import { eventually, refused } from '../harness.mjs';
import { signature } from '../receiver.mjs';

// From a record's change to a signed request, and what becomes of it.
export default async function ({ check, client, newClient, wire, receiver, object, tag, StandardWebhook }) {
  const hook = async (name, values = {}) => {
    const path = `/${name}`;
    const { record } = await client.data.create('sys_webhook', {
      name: `checks_${tag}_${name}`, label: name, object_name: object, triggers: ['create', 'update', 'delete'], url: receiver.base + path, active: true, ...values,
    });
    return { ...record, path };
  };
  const end = (w) => client.data.delete('sys_webhook', w.id);
  const record = async (values = {}) => (await client.data.create(object, { name: `w ${tag}`, ...values })).record;
  const delivery = (id, status) => eventually(`delivery ${id} is ${status}`, async () => {
    const r = (await client.data.get('sys_http_delivery', id)).record;
    return r.status === status && r;
  });
  const idOf = (request) => request.headers['x-objectstack-delivery'];
  const redeliver = (body, options) => wire.send('POST', '/api/v1/webhooks/redeliver', { body, ...options });

  await check('a webhook is a record whose secrets cannot be read', async () => {
    const w = await hook('secrets', { signing_secret: 'top-secret-1', headers_secret: '{"X-Team":"crm-team"}', definition_json: '{"timeoutMs":2000}' });
    const got = (await client.data.get('sys_webhook', w.id)).record;
    assert.doesNotMatch(JSON.stringify(got), /top-secret-1|crm-team/);
    assert.ok(got.signing_secret && got.headers_secret, 'but one sees that they are set');
    assert.deepEqual([got.method, got.managed_by, got.customized, got.active, got.paused], ['post', 'admin', false, true, false]);
    await end(w);
  });

  await check('what could never be sent is refused when it is saved', async () => {
    for (const [code, values] of [
      ['VALIDATION_ERROR', { headers_secret: '{"X-A":5}' }], ['VALIDATION_ERROR', { headers_secret: '{"X-Objectstack-Delivery":"mine"}' }],
      ['VALIDATION_FAILED', { triggers: ['explode'] }], ['VALIDATION_FAILED', { triggers: ['undelete'] }], ['VALIDATION_FAILED', { url: 'ftp://example.com' }],
      ['VALIDATION_FAILED', { definition_json: '{"unheard":1}' }], ['VALIDATION_FAILED', { name: 'Not A Name' }],
    ]) await refused(() => hook('refused', values), 400, code);
  });

  await check('the official library verifies Standard Webhooks signatures', async () => {
    const secret = `whsec_${Buffer.from('a secret of twenty-four.').toString('base64')}`;
    const w = await hook('standard', { signing_secret: secret, definition_json: '{"signature":"both"}' });
    const made = await record();
    const [r] = await receiver.wait(w.path, 1);
    assert.equal(new StandardWebhook(secret).verify(r.body, r.headers).recordId, made.id);
    assert.equal(r.headers['webhook-id'], idOf(r));
    assert.throws(() => new StandardWebhook(secret).verify(`${r.body} `, r.headers), /No matching signature/);
    assert.ok(r.headers['x-objectstack-signature']);
    await end(w);
  });

  await check('create, update and delete arrive in order, signed, with the event as body', async () => {
    const w = await hook('order', { signing_secret: 'shh', headers_secret: '{"X-Team":"crm"}' });
    const made = await record({ annual_revenue: 1 });
    await client.data.update(object, made.id, { annual_revenue: 2 });
    await client.data.delete(object, made.id);
    const got = await receiver.wait(w.path, 3);
    assert.deepEqual(got.map((r) => [r.json.type, r.json.action, r.json.object, r.json.recordId]), [
      ['data.record.created', 'created', object, made.id], ['data.record.updated', 'updated', object, made.id], ['data.record.deleted', 'deleted', object, made.id],
    ]);
    for (const r of got) {
      const h = r.headers;
      assert.deepEqual([r.method, h['content-type'], h['user-agent'], h['x-objectstack-attempt'], h['x-team']], ['POST', 'application/json', 'ObjectStack-Http/1.0', '1', 'crm']);
      assert.equal(h['x-objectstack-event'], r.json.type);
      assert.equal(h['x-objectstack-signature'], signature('shh', r.body));
      assert.match(idOf(r), /^[0-9a-f]{8}-[0-9a-f]{4}-7/, 'a UUID of version 7');
      assert.deepEqual(Object.keys(r.json).slice(-4), ['object', 'recordId', 'action', 'timestamp']);
    }
    const [created, updated, deleted] = got.map((r) => r.json);
    assert.equal(created.after.annual_revenue, 1);
    assert.deepEqual([updated.changes.annual_revenue, updated.after.annual_revenue, updated.after.name], [2, 2, made.name]);
    assert.equal(deleted.after, undefined);
    assert.equal(new Set(got.map(idOf)).size, 3);
    await end(w);
  });

  await check('only the chosen triggers and the chosen object match', async () => {
    const w = await hook('chosen', { triggers: ['delete'] });
    const all = await hook('every', { object_name: '' });
    const made = await record();
    await client.data.delete(object, made.id);
    const deleted = await receiver.wait(w.path, 1);
    assert.deepEqual(deleted.map((r) => r.json.action), ['deleted']);
    const both = (await receiver.wait(all.path, 2)).filter((r) => r.json.recordId === made.id);
    assert.deepEqual(both.map((r) => r.json.action), ['created', 'deleted']);
    await end(w);
    await end(all);
  });

  await check('a delivery is a record that tells how it went, without its headers', async () => {
    const w = await hook('row', { signing_secret: 'shh', headers_secret: '{"X-Hidden":"hidden-value"}' });
    const made = await record();
    const [request] = await receiver.wait(w.path, 1);
    const row = await delivery(idOf(request), 'success');
    assert.deepEqual([row.source, row.ref_id, row.label, row.method, row.url, row.attempts, row.response_code, row.error], [
      'webhook', w.id, 'data.record.created', 'POST', receiver.base + w.path, 1, 200, null]);
    assert.equal(row.payload_json, request.body);
    assert.equal(row.signature, signature('shh', request.body));
    assert.ok(row.dedup_key.startsWith(`${w.id}:${object}:${made.id}:created:`), row.dedup_key);
    assert.equal(typeof row.last_attempted_at, 'number');
    assert.equal('headers_json' in row || 'signing_secret' in row, false);
    assert.doesNotMatch(JSON.stringify(row), /hidden-value/);
    const page = await client.data.query('sys_http_delivery', { where: { ref_id: w.id }, limit: 10 });
    assert.deepEqual([page.total, page.records[0].id], [1, row.id]);
    const attempts = await wire.send('GET', `/api/v1/deliveries/${row.id}/attempts`);
    assert.deepEqual(attempts.body.data.attempts.map((a) => [a.attempt, a.responseCode, a.errorClass]), [[1, 200, null]]);
    await end(w);
  });

  await check('deliveries cannot be written through the API', async () => {
    await refused(() => client.data.create('sys_http_delivery', { url: 'https://example.com' }), 405, 'OBJECT_API_METHOD_NOT_ALLOWED');
    await refused(() => client.data.update('sys_http_delivery', 'x', { status: 'success' }), 405, 'OBJECT_API_METHOD_NOT_ALLOWED');
    await refused(() => client.data.delete('sys_http_delivery', 'x'), 405, 'OBJECT_API_METHOD_NOT_ALLOWED');
  });

  await check('500 is tried again under the same id', async () => {
    const w = await hook('again');
    receiver.answer(w.path, 500, 200);
    await record();
    const [first, second] = await receiver.wait(w.path, 2);
    assert.deepEqual([first, second].map((r) => r.headers['x-objectstack-attempt']), ['1', '2']);
    assert.deepEqual([idOf(second), second.body], [idOf(first), first.body]);
    const row = await delivery(idOf(first), 'success');
    assert.deepEqual([row.attempts, row.error, row.next_retry_at], [2, null, null]);
    await end(w);
  });

  await check('400 and redirects are final', async () => {
    const w = await hook('final');
    receiver.answer(w.path, 400, 302);
    const made = await record();
    await client.data.update(object, made.id, { annual_revenue: 1 });
    const got = await receiver.wait(w.path, 2);
    for (const [i, code] of [400, 302].entries()) {
      const row = await delivery(idOf(got[i]), 'dead');
      assert.deepEqual([row.attempts, row.response_code, row.error], [1, code, `HTTP ${code}`]);
    }
    await end(w);
  });

  await check('redeliver sends the same bytes once more, counted from one', async () => {
    const w = await hook('redeliver');
    await record();
    const [first] = await receiver.wait(w.path, 1);
    await delivery(idOf(first), 'success');
    const r = await redeliver({ deliveryId: idOf(first) });
    assert.deepEqual([r.status, r.text.trim()], [200, `{"success":true,"data":{"id":"${idOf(first)}","status":"pending"}}`]);
    const [, second] = await receiver.wait(w.path, 2);
    assert.deepEqual([idOf(second), second.headers['x-objectstack-attempt'], second.body], [idOf(first), '1', first.body]);
    await delivery(idOf(first), 'success');
    await end(w);
    const gone = await redeliver({ deliveryId: idOf(first) });
    assert.deepEqual([gone.status, gone.body.error.code], [409, 'DELIVERY_NOT_ELIGIBLE'], 'the webhook is deleted');
  });

  await check('redeliver refuses what it cannot do', async () => {
    for (const [body, options, status, code] of [
      [{ deliveryId: 'x' }, { anonymous: true }, 401, 'UNAUTHENTICATED'], [{}, {}, 400, 'MISSING_REQUIRED_FIELD'],
      ['{', {}, 400, 'INVALID_REQUEST'], [{ deliveryId: 'unknown' }, {}, 404, 'RESOURCE_NOT_FOUND'],
    ]) {
      const r = await redeliver(body, options);
      assert.deepEqual([r.status, r.body.success, r.body.error.code], [status, false, code]);
    }
  });

  await check('a paused webhook holds its deliveries until it goes on', async () => {
    const w = await hook('paused', { paused: true });
    const made = await record();
    const row = await eventually('the delivery is stored', async () => (await client.data.query('sys_http_delivery', { where: { ref_id: w.id }, limit: 1 })).records[0]);
    assert.deepEqual([row.status, row.attempts], ['pending', 0]);
    const cancelled = await record();
    const other = await eventually('the second delivery is stored', async () => (await client.data.query('sys_http_delivery', { where: { ref_id: w.id }, limit: 5 })).records.find((d) => d.dedup_key.includes(cancelled.id)));
    const c = await wire.send('POST', `/api/v1/deliveries/${other.id}/cancel`);
    assert.deepEqual([c.status, c.body.data], [200, { id: other.id, status: 'failed' }]);
    await client.data.update('sys_webhook', w.id, { paused: false });
    const [request] = await receiver.wait(w.path, 1);
    assert.deepEqual([idOf(request), request.json.recordId], [row.id, made.id]);
    await delivery(row.id, 'success');
    assert.equal(receiver.requests.filter((r) => r.path === w.path).length, 1, 'the cancelled one was not sent');
    await end(w);
  });

  await check('test sends a sample and returns its attempt', async () => {
    const w = await hook('test', { signing_secret: 'shh' });
    const r = await wire.send('POST', `/api/v1/webhooks/${w.id}/test`, { body: {} });
    assert.equal(r.status, 200);
    const [request] = await receiver.wait(w.path, 1);
    assert.equal(request.headers['x-objectstack-signature'], signature('shh', request.body));
    assert.match(r.text, new RegExp(idOf(request)));
    await end(w);
  });

  await check('a rotated secret signs, the old one beside it for the overlap', async () => {
    const w = await hook('rotate', { signing_secret: 'old-secret' });
    const r = await wire.send('POST', `/api/v1/webhooks/${w.id}/rotate-secret`, { body: { overlapHours: 1 } });
    assert.equal(r.status, 200);
    const { secret } = r.body.data;
    await record();
    const [request] = await receiver.wait(w.path, 1);
    assert.equal(request.headers['x-objectstack-signature'], signature(secret, request.body));
    assert.equal(request.headers['x-objectstack-signature-previous'], signature('old-secret', request.body));
    await end(w);
  });

  await check("the client's event handlers understand the body of a delivery", async () => {
    const w = await hook('events');
    const made = await record();
    const [{ json }] = await receiver.wait(w.path, 1);
    const listener = newClient();
    const seen = new Promise((resolve) => {
      const off = listener.events.subscribeData(object, (e) => { off(); resolve(e); });
    });
    listener.events._bufferEvent({ type: json.type, object, payload: json, timestamp: json.timestamp });
    assert.equal((await seen).recordId, made.id);
    await end(w);
  });
}
