import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Many records in one request: which of them are written when one is refused.
export default async function ({ check, client, wire, object, tag }) {
  let last = 0;
  const names = (n) => Array.from({ length: n }, () => `b${tag} ${++last}`);
  const make = async (n) => (await client.data.createMany(object, names(n).map((name) => ({ name })))).records.map((r) => r.id);
  const count = async (name) => (await client.data.query(object, { where: { name }, limit: 1 })).total;
  const revenue = async (id) => (await client.data.get(object, id)).record.annual_revenue;
  // told is a bulk answer in short: per record true, or the code of its error.
  const told = (r) => r.results.map((x) => x.success || x.errors[0].code);

  await check('createMany() takes a bare array and answers all records', async () => {
    const wanted = names(3);
    const r = await client.data.createMany(object, wanted.map((name, i) => ({ name, annual_revenue: i })));
    assert.equal(wire.last.status, 201);
    assert.deepEqual([r.object, r.count, r.records.map((x) => [x.name, x.annual_revenue])], [object, 3, wanted.map((name, i) => [name, i])]);
  });

  await check('createMany() writes all or nothing', async () => {
    const [good] = names(1);
    await refused(() => client.data.createMany(object, [{ name: good }, { industry: 'unheard of' }]), 400, 'VALIDATION_FAILED');
    await refused(() => client.data.createMany(object, [{ name: good, code: `${tag}same` }, { name: good, code: `${tag}same` }]), 409, 'UNIQUE_VIOLATION');
    assert.equal(await count(good), 0);
  });

  await check('updateMany() with continueOnError does what it can', async () => {
    const [a, b] = await make(2);
    const r = await client.data.updateMany(object, [a, 'unknown', b].map((id, i) => ({ id, data: { annual_revenue: i } })), { continueOnError: true });
    assert.deepEqual([r.success, r.operation, r.total, r.succeeded, r.failed], [false, 'update', 3, 2, 1]);
    assert.deepEqual(told(r), [true, 'RECORD_NOT_FOUND', true]);
    assert.deepEqual(r.results.map((x) => x.index), [0, 1, 2]);
    assert.deepEqual([await revenue(a), await revenue(b)], [0, 2]);
  });

  await check('updateMany() stops at the first failure and keeps what was before', async () => {
    const [a, b] = await make(2);
    const r = await client.data.updateMany(object, [a, 'unknown', b].map((id) => ({ id, data: { annual_revenue: 9 } })));
    assert.deepEqual(told(r), [true, 'RECORD_NOT_FOUND', 'NOT_ATTEMPTED']);
    assert.deepEqual([r.succeeded, r.failed], [1, 2]);
    assert.deepEqual([await revenue(a), await revenue(b)], [9, null]);
  });

  await check('updateMany() atomic takes back what was before', async () => {
    const [a, b] = await make(2);
    const r = await client.data.updateMany(object, [a, 'unknown', b].map((id) => ({ id, data: { annual_revenue: 9 } })), { atomic: true });
    assert.deepEqual([told(r)[0], told(r)[1], r.succeeded], ['ROLLED_BACK', 'RECORD_NOT_FOUND', 0]);
    assert.deepEqual([await revenue(a), await revenue(b)], [null, null]);
  });

  await check('deleteMany() tells about each id', async () => {
    const [a, b] = await make(2);
    const r = await client.data.deleteMany(object, [a, 'unknown', b], { continueOnError: true });
    assert.deepEqual([r.operation, r.succeeded, r.failed, told(r)], ['delete', 2, 1, [true, 'RECORD_NOT_FOUND', true]]);
    await refused(() => client.data.get(object, b), 404, 'RECORD_NOT_FOUND');
  });

  await check('batch() creates, and tells which record is invalid', async () => {
    const [one, two] = names(2);
    const r = await client.data.batch(object, { operation: 'create', records: [{ data: { name: one } }, { data: {} }, { data: { name: two } }], options: { continueOnError: true, returnRecords: true } });
    assert.deepEqual([r.operation, told(r)], ['create', [true, 'VALIDATION_FAILED', true]]);
    assert.equal(r.results[0].data.name, one);
    assert.equal(r.results[1].errors[0].httpStatus ?? 400, 400);
    assert.deepEqual([await count(one), await count(two)], [1, 1]);
  });

  await check('batch() atomic rolls all back', async () => {
    const [one] = names(1);
    const r = await client.data.batch(object, { operation: 'create', records: [{ data: { name: one } }, { data: {} }], options: { atomic: true } });
    assert.deepEqual([r.success, r.succeeded, told(r)], [false, 0, ['ROLLED_BACK', 'VALIDATION_FAILED']]);
    assert.equal(await count(one), 0);
  });

  await check('batch() upsert updates by id and creates without one', async () => {
    const [a] = await make(1);
    const [name] = names(1);
    const r = await client.data.batch(object, { operation: 'upsert', records: [{ id: a, data: { annual_revenue: 5 } }, { data: { name } }], options: {} });
    assert.deepEqual([r.success, r.succeeded], [true, 2]);
    assert.deepEqual([await revenue(a), await count(name)], [5, 1]);
  });

  await check('more than 200 records are refused', async () => {
    const r = await wire.send('POST', `/api/v1/data/${object}/deleteMany`, { body: { ids: Array.from({ length: 201 }, (_, i) => `id${i}`) } });
    assert.deepEqual([r.status, r.body.code, r.body.count, r.body.max], [400, 'BATCH_TOO_LARGE', 201, 200]);
  });

  await check('a bulk answer passes the client whole: it has success and no data', async () => {
    const [a] = await make(1);
    await client.data.deleteMany(object, [a]);
    assert.equal('data' in JSON.parse(wire.last.text), false);
  });

  await check('batchTransaction() does all steps, later ones with the ids of earlier ones', async () => {
    const [one] = names(1);
    const r = await client.data.batchTransaction([{ object, action: 'create', data: { name: one } }, { object, action: 'create', data: { name: { $ref: 0 } } }]);
    assert.match(wire.last.request, /^POST \/api\/v1\/batch$/);
    assert.deepEqual(r.results.map((x) => x.name), [one, r.results[0].id]);
  });

  await check('batchTransaction() does nothing when one step fails', async () => {
    const [one] = names(1);
    await refused(() => client.data.batchTransaction([{ object, action: 'create', data: { name: one } }, { object, action: 'create', data: {} }]), 400, 'VALIDATION_FAILED');
    assert.equal(await count(one), 0);
  });
}
