import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Metadata and records. It returns what deletes the records again.
export default async function ({ check, user: client, object, tag, wire, state }) {
  await check('meta/types', async () => assert.ok((await client.meta.getTypes()).types.includes('object')));
  await check('meta/list of objects', async () => {
    const r = await client.meta.getItems('object');
    assert.equal(r.type, 'object');
    assert.ok(r.items.some((o) => o.name === object));
  });
  await check('meta/one object', async () => {
    const { type, name, item } = await client.meta.getItem('object', object);
    const { fields } = item;
    assert.deepEqual([type, name, fields.name.type, fields.name.required, fields.industry.type, fields.active.type], ['object', object, 'text', true, 'select', 'boolean']);
    assert.deepEqual(fields.industry.options[0], { label: 'Technology', value: 'technology' });
  });
  await check('meta/conditional GET', async () => {
    const first = await client.meta.getCached(object);
    const thrown = await client.meta.getCached(object, { ifNoneMatch: `"${first.etag.value}"` }).catch((e) => e);
    assert.equal(thrown.httpStatus, 304);
  });
  await check('meta/unknown item', () => refused(() => client.meta.getItem('object', 'no_such_object'), 404, 'RESOURCE_NOT_FOUND'));
  await check('meta/view', async () => {
    const r = await client.meta.getView(object, 'list');
    assert.deepEqual([r.object, r.list.columns[0].field], [object, 'name']);
  });

  const called = (name) => `${name} calls${tag}`;
  const code = (s) => `k${tag}${s}`;
  const mine = { name: { $contains: `calls${tag}` } };
  const name = called('Acme');
  await check('data/create', async () => {
    const r = await client.data.create(object, { name, industry: 'technology', annual_revenue: 1500.5, code: code('a') });
    assert.deepEqual([wire.last.status, r.object, r.record.id, r.record.annual_revenue, r.record.active], [201, object, r.id, 1500.5, true]);
    assert.ok(r.record.created_at && r.record.updated_at && r.record.created_by);
    state.id = r.id;
    state.code = code('a');
  });
  const { id } = state;
  await check('data/get', async () => {
    const r = await client.data.get(object, id);
    assert.deepEqual([r.object, r.id, r.record.name], [object, id, name]);
  });
  let many;
  await check('data/createMany', async () => {
    const r = await client.data.createMany(object, [
      { name: called('M1'), industry: 'finance', annual_revenue: 10, active: false },
      { name: called('M2'), industry: 'retail', annual_revenue: 20 },
      { name: called('M3'), annual_revenue: 30 },
    ]);
    assert.deepEqual([wire.last.status, r.object, r.count, r.records.length], [201, object, 3, 3]);
    many = r.records.map((x) => x.id);
  });
  await check('data/createMany is all or nothing', async () => {
    await refused(() => client.data.createMany(object, [{ name: called('none') }, { industry: 'zz' }]), 400, 'VALIDATION_FAILED');
    assert.equal((await client.data.find(object, { where: { name: called('none') }, limit: 1 })).total, 0);
  });
  await check('data/find: equality map, fields, sort, paging', async () => {
    const r = await client.data.find(object, { where: { industry: 'finance', name: called('M1') }, fields: ['id', 'name'], orderBy: '-name', limit: 2, offset: 0 });
    assert.deepEqual([r.object, r.total, r.hasMore, r.records], [object, 1, false, [{ id: many[0], name: called('M1') }]]);
  });
  await check('data/find: filter AST + top/skip', async () => {
    const q = { filter: ['and', ['name', 'contains', `calls${tag}`], ['annual_revenue', '>=', 20]], sort: ['-annual_revenue'], select: ['annual_revenue'], top: 2 };
    const page = async (skip) => {
      const r = await client.data.find(object, { ...q, skip });
      return [r.records.map((x) => x.annual_revenue), r.total, r.hasMore];
    };
    assert.deepEqual(await page(0), [[1500.5, 30], 3, true]);
    assert.deepEqual(await page(2), [[20], 3, false]);
  });
  await check('data/find: limit 0 returns no rows', async () => assert.deepEqual((await client.data.find(object, { limit: 0 })).records, []));
  await check('data/query: operators', async () => {
    const names = async (where) => {
      const r = await client.data.query(object, { where: { $and: [mine, where] }, fields: ['name'], orderBy: [{ field: 'name', order: 'asc' }] });
      return r.records.map((x) => x.name.split(' ')[0]).join();
    };
    for (const [where, want] of [
      [{ annual_revenue: { $gt: 10, $lte: 30 } }, 'M2,M3'], [{ industry: { $in: ['finance', 'retail'] } }, 'M1,M2'], [{ active: { $ne: true } }, 'M1'],
      [{ industry: { $null: true } }, 'M3'], [{ name: { $startsWith: 'M' } }, 'M1,M2,M3'], [{ annual_revenue: { $between: [10, 20] } }, 'M1,M2'],
      [{ $or: [{ industry: 'retail' }, { annual_revenue: 10 }] }, 'M1,M2'], [{ $not: { name: { $startsWith: 'M' } } }, 'Acme'],
      [{ name: { $icontains: 'ACME' } }, 'Acme'], [{ industry: { $nin: ['finance', 'technology'] } }, 'M2,M3'],
    ]) {
      assert.equal(await names(where), want, JSON.stringify(where));
    }
  });
  await check('data/query: sort, limit, total, hasMore', async () => {
    const r = await client.data.query(object, { where: mine, fields: ['annual_revenue'], orderBy: [{ field: 'annual_revenue', order: 'desc' }], limit: 2, offset: 1 });
    assert.deepEqual([r.records.map((x) => x.annual_revenue), r.total, r.hasMore], [[30, 20], 4, true]);
  });
  await check('data/query: groupBy + aggregations', async () => {
    const r = await client.data.query(object, { where: mine, groupBy: ['active'], aggregations: [{ function: 'count', alias: 'n' }, { function: 'sum', field: 'annual_revenue', alias: 'total' }] });
    const on = r.records.find((x) => x.active === true);
    assert.deepEqual([on.n, on.total], [3, 1550.5]);
  });
  await check('data/query: count:false leaves total out', async () => assert.equal('total' in (await client.data.query(object, { limit: 1, count: false })), false));
  await check('data/query: search', async () => {
    const r = await client.data.query(object, { search: `acme calls${tag}`, limit: 5 });
    assert.deepEqual(r.records.map((x) => x.id), [id]);
  });
  let version;
  await check('data/update', async () => {
    const r = await client.data.update(object, id, { annual_revenue: 99, active: false });
    assert.deepEqual([r.object, r.id, r.record.annual_revenue, r.record.active, r.record.name], [object, id, 99, false, name]);
    version = r.record.updated_at;
  });
  await check('data/update with a matching If-Match', async () => {
    assert.equal((await client.data.update(object, id, { annual_revenue: 100 }, { ifMatch: version })).record.annual_revenue, 100);
  });
  await check('data/update with a stale If-Match', () => refused(() => client.data.update(object, id, { annual_revenue: 98 }, { ifMatch: version }), 409, 'CONCURRENT_UPDATE'));
  await check('data/readonly fields are dropped and reported', async () => {
    const r = await client.data.update(object, id, { created_at: '2000-01-01T00:00:00Z', annual_revenue: 101 });
    assert.deepEqual(r.droppedFields, [{ object, fields: ['created_at'], reason: 'readonly' }]);
    assert.equal(wire.last.headers['x-objectstack-dropped-fields'], 'created_at;reason=readonly');
  });
  await check('data/updateMany, partial failure', async () => {
    const rows = [{ id: many[0], data: { annual_revenue: 11 } }, { id: 'nope', data: { annual_revenue: 1 } }, { id: many[1], data: { annual_revenue: 21 } }];
    const r = await client.data.updateMany(object, rows, { continueOnError: true });
    assert.deepEqual([r.success, r.operation, r.total, r.succeeded, r.failed, r.results[1].errors[0].code], [false, 'update', 3, 2, 1, 'RECORD_NOT_FOUND']);
    assert.deepEqual(r.results.map((x) => x.index), [0, 1, 2]);
  });
  await check('data/updateMany stops at the first failure by default', async () => {
    const r = await client.data.updateMany(object, [{ id: 'nope', data: { annual_revenue: 1 } }, { id: many[1], data: { annual_revenue: 22 } }]);
    assert.deepEqual([r.succeeded, r.failed, r.results[1].errors[0].code], [0, 2, 'NOT_ATTEMPTED']);
  });
  await check('data/batch create', async () => {
    const r = await client.data.batch(object, { operation: 'create', records: [{ data: { name: called('B1') } }, { data: {} }], options: { continueOnError: true } });
    assert.deepEqual([r.operation, r.succeeded, r.failed, r.results[1].errors[0].code], ['create', 1, 1, 'VALIDATION_FAILED']);
  });
  await check('data/batch create atomic rolls back', async () => {
    const r = await client.data.batch(object, { operation: 'create', records: [{ data: { name: called('B2') } }, { data: {} }], options: { atomic: true } });
    assert.deepEqual([r.success, r.succeeded, r.results[0].errors[0].code], [false, 0, 'ROLLED_BACK']);
    assert.equal((await client.data.find(object, { where: { name: called('B2') }, limit: 1 })).total, 0);
  });
  await check('data/cross-object transaction with $ref', async () => {
    const r = await client.data.batchTransaction([{ object, action: 'create', data: { name: called('T1') } }, { object, action: 'create', data: { name: { $ref: 0 } } }]);
    assert.match(wire.last.request, /^POST \/api\/v1\/batch$/);
    assert.equal(r.results[1].name, r.results[0].id);
    await client.data.delete(object, r.results[1].id);
  });
  await check('data/clone', async () => {
    const r = await client.data.clone(object, id, { name: called('Clone') });
    assert.deepEqual([r.sourceId, r.record.name, r.record.industry, r.record.code], [id, called('Clone'), 'technology', null]);
  });

  return async () => {
    await check('data/deleteMany', async () => {
      const r = await client.data.deleteMany(object, [many[0], 'nope'], { continueOnError: true });
      assert.deepEqual([r.operation, r.succeeded, r.failed, r.results[1].errors[0].code], ['delete', 1, 1, 'RECORD_NOT_FOUND']);
    });
    await check('data/delete', async () => assert.deepEqual(await client.data.delete(object, id), { object, id, success: true }));
    await check('errors/unknown record: delete', () => refused(() => client.data.delete(object, id), 404, 'RECORD_NOT_FOUND'));
    const left = await client.data.query(object, { where: mine, fields: ['id'] });
    await client.data.deleteMany(object, left.records.map((x) => x.id), { continueOnError: true });
  };
}
