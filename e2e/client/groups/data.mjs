import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// One record at a time: create, get, update, delete, versions, clones.
export default async function ({ check, client, wire, object, tag }) {
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
  const code = (s) => `${tag}d${s}`;
  const make = async (values) => (await client.data.create(object, { name: `one ${tag}`, ...values })).record;

  await check('create() answers 201 with the whole record', async () => {
    const r = await client.data.create(object, { name: `one ${tag}`, industry: 'finance', annual_revenue: 12.25, code: code('create') });
    assert.equal(wire.last.status, 201);
    assert.deepEqual([r.object, r.id], [object, r.record.id]);
    const { name, industry, annual_revenue: revenue, active } = r.record;
    assert.deepEqual({ name, industry, revenue, active }, { name: `one ${tag}`, industry: 'finance', revenue: 12.25, active: true });
    assert.match(r.record.created_at, time);
    assert.equal(r.record.updated_at, r.record.created_at);
    assert.ok('created_by' in r.record && 'updated_by' in r.record);
  });

  await check('fields that are not given are null, and a given null is null', async () => {
    const r = await make({ industry: null });
    assert.deepEqual([r.industry, r.annual_revenue, r.code], [null, null, null]);
  });

  await check('get() returns what create() did', async () => {
    const made = await make({ annual_revenue: 3 });
    const r = await client.data.get(object, made.id);
    assert.deepEqual(r, { object, id: made.id, record: made });
  });

  await check('get with select returns just these fields', async () => {
    const made = await make({ annual_revenue: 3 });
    const r = await wire.send('GET', `/api/v1/data/${object}/${made.id}?select=name`);
    assert.deepEqual(r.body, { object, id: made.id, record: { name: made.name } });
  });

  await check('numbers keep their digits', async () => {
    const r = await wire.send('POST', `/api/v1/data/${object}`, { body: `{"name":"digits ${tag}","annual_revenue":12345678901234567890.123456789}` });
    assert.equal(r.status, 201);
    assert.match(r.text, /"annual_revenue":12345678901234567890\.123456789[,}]/);
  });

  await check('update() changes the given fields, returns the whole record and a newer version', async () => {
    const made = await make({ annual_revenue: 1, code: code('update') });
    const r = await client.data.update(object, made.id, { annual_revenue: 2, active: false });
    assert.deepEqual([r.object, r.id, r.droppedFields], [object, made.id, undefined]);
    assert.deepEqual(r.record, { ...made, annual_revenue: 2, active: false, updated_at: r.record.updated_at, updated_by: r.record.updated_by });
    assert.ok(r.record.updated_at > made.updated_at, 'updated_at grows');
    assert.deepEqual((await client.data.get(object, made.id)).record, r.record);
  });

  await check('update() with the version at hand is taken, with an old one refused', async () => {
    const made = await make();
    const second = (await client.data.update(object, made.id, { annual_revenue: 1 }, { ifMatch: made.updated_at })).record;
    const e = await refused(() => client.data.update(object, made.id, { annual_revenue: 2 }, { ifMatch: made.updated_at }), 409, 'CONCURRENT_UPDATE');
    assert.equal(e.details.currentVersion, second.updated_at);
    assert.deepEqual(e.details.currentRecord, second);
    assert.equal((await client.data.get(object, made.id)).record.annual_revenue, 1);
  });

  await check('readonly fields are left out, and the answer says which', async () => {
    const made = await make();
    const r = await client.data.update(object, made.id, { created_at: '2001-01-01T00:00:00.000Z', annual_revenue: 7 });
    assert.deepEqual(r.droppedFields, [{ object, fields: ['created_at'], reason: 'readonly' }]);
    assert.deepEqual([r.record.created_at, r.record.annual_revenue], [made.created_at, 7]);
    assert.match(wire.last.headers['x-objectstack-dropped-fields'], /created_at/);
  });

  await check('delete() removes the record', async () => {
    const made = await make();
    assert.deepEqual(await client.data.delete(object, made.id), { object, id: made.id, success: true });
    await refused(() => client.data.get(object, made.id), 404, 'RECORD_NOT_FOUND');
    await refused(() => client.data.delete(object, made.id), 404, 'RECORD_NOT_FOUND');
  });

  await check('delete() with an old version is refused', async () => {
    const made = await make();
    await client.data.update(object, made.id, { annual_revenue: 1 });
    await refused(() => client.data.delete(object, made.id, { ifMatch: made.updated_at }), 409, 'CONCURRENT_UPDATE');
    assert.equal((await client.data.get(object, made.id)).id, made.id);
  });

  await check('clone() copies a record under new values', async () => {
    const made = await make({ industry: 'retail', annual_revenue: 5, code: code('clone') });
    const r = await client.data.clone(object, made.id, { name: `clone ${tag}` });
    assert.equal(wire.last.status, 201);
    assert.equal(r.sourceId, made.id);
    assert.notEqual(r.record.id, made.id);
    assert.deepEqual([r.record.name, r.record.industry, r.record.annual_revenue, r.record.code], [`clone ${tag}`, 'retail', 5, null]);
  });
}
