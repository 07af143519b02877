import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Metadata: which objects there are and what their fields look like.
export default async function ({ check, client, newClient, wire, object }) {
  await check('getTypes() has objects', async () => {
    const { types, entries } = await client.meta.getTypes();
    assert.ok(types.includes('object'));
    assert.ok(Array.isArray(entries));
  });

  await check('getItems() lists the objects', async () => {
    const { type, items } = await client.meta.getItems('object');
    assert.equal(type, 'object');
    const names = items.map((i) => i.name);
    for (const name of [object, 'sys_webhook', 'sys_http_delivery']) assert.ok(names.includes(name), name);
  });

  await check('getItem() tells fields with their types, options and defaults', async () => {
    const { type, name, item } = await client.meta.getItem('object', object);
    assert.deepEqual([type, name, item.name, item.label], ['object', object, object, 'Account']);
    const of = (field, ...keys) => keys.map((k) => item.fields[field][k]);
    assert.deepEqual(of('name', 'type', 'required', 'label'), ['text', true, 'Name']);
    assert.deepEqual(of('annual_revenue', 'type', 'min'), ['number', 0]);
    assert.deepEqual(of('active', 'type', 'defaultValue'), ['boolean', true]);
    assert.deepEqual(of('code', 'type', 'unique', 'maxLength'), ['text', true, 20]);
    assert.deepEqual(item.fields.industry.options.map((o) => [o.value, o.label]), [['technology', 'Technology'], ['finance', 'Finance'], ['retail', 'Retail']]);
    for (const system of ['id', 'created_at', 'updated_at', 'created_by', 'updated_by']) assert.ok(item.fields[system], system);
  });

  await check('secret columns of deliveries are not part of the metadata', async () => {
    const { item } = await client.meta.getItem('object', 'sys_http_delivery');
    assert.equal(item.fields.headers_json, undefined);
    assert.equal(item.fields.signing_secret, undefined);
  });

  await check('a conditional GET is answered 304', async () => {
    const { etag } = await client.meta.getCached(object);
    assert.ok(etag.value, 'the first answer has an ETag');
    // The client's transport throws on a 304, which its own code would read as "not modified".
    const again = await client.meta.getCached(object, { ifNoneMatch: `"${etag.value}"` }).catch((e) => e);
    assert.ok(again.notModified === true || again.httpStatus === 304, 'the second is 304');
    const other = await client.meta.getCached(object, { ifNoneMatch: '"another"' });
    assert.equal(other.data.name ?? other.data.item?.name, object);
  });

  await check('unknown items and types are 404', async () => {
    await refused(() => client.meta.getItem('object', 'no_such_object'), 404, 'RESOURCE_NOT_FOUND');
  });

  await check('metadata needs a key', () => refused(() => newClient({ token: undefined }).meta.getItems('object'), 401, 'UNAUTHENTICATED'));

  await check('HEAD is answered like GET, without a body', async () => {
    const r = await wire.send('HEAD', `/api/v1/meta/object/${object}`);
    assert.deepEqual([r.status, r.text], [200, '']);
    assert.ok(r.headers.get('etag'));
  });
}
