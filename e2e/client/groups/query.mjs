import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Reading many records: both query forms, every operator, sorting, paging, groups, search.
export default async function ({ check, client, wire, object, tag }) {
  // Five records; e has neither an industry nor a revenue.
  const rows = [
    { name: `q${tag} a`, industry: 'technology', annual_revenue: 10, active: true },
    { name: `q${tag} b`, industry: 'finance', annual_revenue: 20, active: false },
    { name: `q${tag} c`, industry: 'retail', annual_revenue: 20.5, active: true },
    { name: `q${tag} D`, industry: 'finance', annual_revenue: 100, active: true },
    { name: `q${tag} e`, active: false },
  ];
  await client.data.createMany(object, rows);
  const own = { name: { $startsWith: `q${tag} ` } };
  const letters = (page) => page.records.map((r) => r.name.slice(-1)).join('');
  const where = async (filter) => letters(await client.data.query(object, { where: { $and: [own, filter] }, orderBy: [{ field: 'name', order: 'asc' }] }));
  const ast = async (filter) => letters(await client.data.find(object, { filter: ['and', ['name', 'starts_with', `q${tag} `], filter], sort: 'name' }));

  await check('operators of the object form, by value', async () => {
    for (const [filter, want] of [
      [{ industry: 'finance' }, 'Db'], [{ industry: { $eq: 'finance' } }, 'Db'], [{ active: true }, 'Dac'],
      [{ annual_revenue: { $gt: 20 } }, 'Dc'], [{ annual_revenue: { $gte: 20 } }, 'Dbc'],
      [{ annual_revenue: { $lt: 20.5 } }, 'ab'], [{ annual_revenue: { $lte: 20.5 } }, 'abc'],
      [{ annual_revenue: { $gt: 10, $lt: 100 } }, 'bc'], [{ annual_revenue: { $between: [20, 100] } }, 'Dbc'],
      [{ industry: { $in: ['retail', 'technology'] } }, 'ac'], [{ industry: { $in: [] } }, ''],
      [{ name: { $contains: ' b' } }, 'b'], [{ name: { $endsWith: 'd' } }, ''], [{ name: { $endsWith: 'D' } }, 'D'],
      [{ name: { $icontains: ' d' } }, 'D'], [{ $or: [{ industry: 'retail' }, { annual_revenue: 10 }] }, 'ac'],
    ]) assert.equal(await where(filter), want, JSON.stringify(filter));
  });

  await check('null is matched by what negates, and by nothing that compares', async () => {
    for (const [filter, want] of [
      [{ industry: { $null: true } }, 'e'], [{ industry: { $null: false } }, 'Dabc'], [{ industry: null }, 'e'],
      [{ industry: { $ne: 'finance' } }, 'ace'], [{ industry: { $nin: ['finance', 'retail'] } }, 'ae'],
      [{ $not: { industry: 'finance' } }, 'ace'], [{ annual_revenue: { $lt: 1000 } }, 'Dabc'], [{ annual_revenue: { $ne: 10 } }, 'Dbce'],
    ]) assert.equal(await where(filter), want, JSON.stringify(filter));
  });

  await check('operators of the array form, in all their spellings', async () => {
    for (const [ops, field, value, want] of [
      [['=', '==', 'equals', 'eq', 'EQ'], 'industry', 'finance', 'Db'],
      [['!=', '<>', 'ne', 'neq', 'not_equals'], 'industry', 'finance', 'ace'],
      [['>', 'gt', 'greater_than', 'after'], 'annual_revenue', 20, 'Dc'],
      [['>=', 'gte'], 'annual_revenue', 20, 'Dbc'],
      [['<', 'lt', 'less_than', 'before'], 'annual_revenue', 20, 'a'],
      [['<=', 'lte'], 'annual_revenue', 20, 'ab'],
      [['in'], 'industry', ['retail'], 'c'], [['nin', 'not_in'], 'industry', ['finance', 'retail'], 'ae'],
      [['contains'], 'name', ' a', 'a'], [['not_contains'], 'name', ' a', 'Dbce'], [['icontains'], 'name', ' d', 'D'],
      [['starts_with', 'startswith'], 'name', `q${tag} c`, 'c'], [['ends_with', 'endswith'], 'name', 'D', 'D'],
      [['like'], 'name', '% b', 'b'], [['ilike'], 'name', '% d', 'D'], [['between'], 'annual_revenue', [10, 20], 'ab'],
      [['is_null', 'is_empty', 'isnull'], 'industry', null, 'e'], [['is_not_null', 'is_not_empty', 'isnotnull'], 'industry', null, 'Dabc'],
    ]) for (const op of ops) assert.equal(await ast([field, op, value]), want, JSON.stringify([field, op, value]));
  });

  await check('arrays nest with and, or, and without a word', async () => {
    assert.equal(await ast(['or', ['industry', '=', 'retail'], ['and', ['industry', '=', 'finance'], ['active', '=', true]]]), 'Dc');
    assert.equal(letters(await client.data.find(object, { filter: [['name', 'starts_with', `q${tag} `], ['annual_revenue', '=', 20]] })), 'b');
  });

  await check('a plain map becomes equality parameters', async () => {
    const r = await client.data.find(object, { where: { name: `q${tag} b`, industry: 'finance' }, limit: 5 });
    assert.match(wire.last.request, /industry=finance/);
    assert.deepEqual([letters(r), r.total, r.hasMore], ['b', 1, false]);
  });

  await check('the aliases of a parameter mean the same', async () => {
    const filter = encodeURIComponent(JSON.stringify(['name', 'starts_with', `q${tag} `]));
    for (const [f, s, o, l, k] of [
      ['filter', 'select', 'sort', 'top', 'skip'], ['filters', 'fields', 'orderBy', 'limit', 'offset'], ['where', 'select', 'sort', 'limit', 'skip'],
      ['$filter', '$select', '$orderby', '$top', '$skip'],
    ]) {
      const r = await wire.send('GET', `/api/v1/data/${object}?${f}=${filter}&${s}=name&${o}=-name&${l}=2&${k}=1`);
      assert.deepEqual([r.status, r.body.records], [200, [{ name: `q${tag} c` }, { name: `q${tag} b` }]], f);
    }
  });

  await check('one slot given twice with different values is refused', async () => {
    const r = await wire.send('GET', `/api/v1/data/${object}?top=1&limit=2`);
    assert.deepEqual([r.status, r.body.code], [400, 'INVALID_REQUEST']);
    const f = await wire.send('GET', `/api/v1/data/${object}?filter=%5B%22active%22,%22%3D%22,true%5D&filter=%5B%22active%22,%22%3D%22,false%5D`);
    assert.deepEqual([f.status, f.body.code], [400, 'INVALID_FILTER']);
    const d = await wire.send('GET', `/api/v1/data/${object}?$apply=x`);
    assert.deepEqual([d.status, d.body.code], [400, 'UNSUPPORTED_QUERY_PARAM']);
  });

  await check('sorting: ascending nulls first, descending last, text by its bytes', async () => {
    const by = async (...orderBy) => letters(await client.data.query(object, { where: own, orderBy: orderBy.map(([field, order]) => ({ field, order })) }));
    assert.equal(await by(['annual_revenue', 'asc']), 'eabcD');
    assert.equal(await by(['annual_revenue', 'desc']), 'Dcbae');
    assert.equal(await by(['name', 'asc']), 'Dabce');
    assert.equal(await by(['active', 'asc'], ['name', 'desc']), 'ebcaD');
    assert.equal(letters(await client.data.find(object, { filter: ['name', 'starts_with', `q${tag} `], sort: 'active,-name' })), 'ebcaD');
  });

  await check('pages: total counts all, hasMore looks ahead', async () => {
    const page = (limit, offset) => client.data.query(object, { where: own, fields: ['name'], orderBy: [{ field: 'name', order: 'asc' }], limit, offset });
    for (const [limit, offset, want, more] of [[2, 0, 'Da', true], [2, 2, 'bc', true], [2, 4, 'e', false], [2, 9, '', false]]) {
      const r = await page(limit, offset);
      assert.deepEqual([letters(r), r.total, r.hasMore], [want, 5, more], `${limit} from ${offset}`);
    }
    assert.deepEqual((await client.data.find(object, { limit: 0 })).records, []);
    assert.equal('total' in (await client.data.query(object, { where: own, limit: 1, count: false })), false);
  });

  await check('without a limit all records come, and total is their number', async () => {
    const r = await client.data.query(object, { where: own });
    assert.deepEqual([r.records.length, r.total, r.hasMore], [5, 5, false]);
  });

  await check('groups with aggregations', async () => {
    const r = await client.data.query(object, {
      where: own, groupBy: ['active'], orderBy: [{ field: 'active', order: 'asc' }],
      aggregations: [
        { function: 'count', alias: 'n' }, { function: 'sum', field: 'annual_revenue', alias: 'sum' }, { function: 'min', field: 'annual_revenue', alias: 'min' },
        { function: 'max', field: 'annual_revenue', alias: 'max' }, { function: 'count_distinct', field: 'industry', alias: 'kinds' },
      ],
    });
    assert.deepEqual(r.records, [
      { active: false, n: 2, sum: 20, min: 20, max: 20, kinds: 1 },
      { active: true, n: 3, sum: 130.5, min: 10, max: 100, kinds: 3 },
    ]);
  });

  await check('aggregations over everything, in the GET form too', async () => {
    const aggregations = [{ function: 'avg', field: 'annual_revenue', alias: 'avg' }, { function: 'count', alias: 'n' }];
    const want = [{ avg: 37.625, n: 5 }];
    assert.deepEqual((await client.data.query(object, { where: own, aggregations })).records, want);
    assert.deepEqual((await client.data.find(object, { filter: ['name', 'starts_with', `q${tag} `], aggregations })).records, want);
  });

  await check('search finds the records that hold every word', async () => {
    assert.equal(letters(await client.data.query(object, { search: `Q${tag} d` })), 'D');
  });

  await check('the body of a query is read strictly', async () => {
    const post = async (body) => {
      const r = await wire.send('POST', `/api/v1/data/${object}/query`, { body });
      return `${r.status} ${r.body.code ?? 'ok'}`;
    };
    assert.equal(await post({ object }), '200 ok');
    assert.equal(await post({ orderBy: [{ field: 'name', direction: 'desc' }] }), '400 VALIDATION_FAILED');
    assert.equal(await post({ orderBy: 'name' }), '400 VALIDATION_FAILED');
    assert.match(await post({ object: 'another' }), /^400 /);
    assert.match(await post({ limits: 3 }), /^400 /);
  });

  await check('unknown fields and operators are refused by name', async () => {
    await refused(() => client.data.query(object, { where: { nope: 1 } }), 400, 'INVALID_FIELD');
    await refused(() => client.data.query(object, { where: { annual_revenue: { $near: 1 } } }), 400, 'INVALID_FILTER');
    await refused(() => client.data.find(object, { filter: ['annual_revenue', '~', 1] }), 400, 'INVALID_FILTER');
    await refused(() => client.data.find(object, { select: ['nope'] }), 400, 'INVALID_FIELD');
    await refused(() => client.data.find(object, { sort: 'nope' }), 400, 'INVALID_SORT');
    const r = await wire.send('GET', `/api/v1/data/${object}?pageSize=3`);
    assert.deepEqual([r.status, r.body.code], [400, 'INVALID_FIELD']);
    assert.match(r.body.error, /top/, 'the text names the right parameter');
    const json = await wire.send('GET', `/api/v1/data/${object}?filter=%7Bbroken`);
    assert.deepEqual([json.status, json.body.code], [400, 'INVALID_FILTER']);
  });
}
