// Goal: clients that people already have work without changes. Method: their packages, pinned,
// against the real program and the demo model. Content is compared between ways of asking, never
// with fixed words.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import Ajv from 'ajv';
import OpenAI from 'openai';

import { Server } from './skippy_server.mjs';

const GREEDY = { model: 'skippy-demo', temperature: 0 };
const QUESTION = [
  { role: 'system', content: 'Answer from the text: the river stone is grey, the paper is old.' },
  { role: 'user', content: 'What colour is the river stone?' }];
const COLOURS = {
  type: 'object',
  properties: { colour: { enum: ['red', 'green', 'blue'] }, bright: { type: 'boolean' } },
  required: ['colour', 'bright'],
  additionalProperties: false,
};
const validColours = new Ajv().compile(COLOURS);
const LOOK = 'look_up';
const ENOUGH = 300; // tokens for a short answer in JSON, white space included

let server;
before(async () => { server = await Server.start(); });
after(async () => { assert.equal(await server?.stop(), 0, server?.log); });

describe('openai', () => {
  let client;
  before(() => {
    client = new OpenAI({ apiKey: 'none', baseURL: `${server.url}/v1`, maxRetries: 0 });
  });
  const chat = (more) =>
    client.chat.completions.create({ ...GREEDY, messages: QUESTION, max_tokens: 16, ...more });

  it('streams the same content that a plain answer has, and usage that adds up', async () => {
    const plain = await chat();
    const stream = await chat({ stream: true, stream_options: { include_usage: true } });
    let text = '';
    let usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, plain.choices[0].message.content);
    assert.equal(usage.prompt_tokens, plain.usage.prompt_tokens);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1);
  });

  it('counts a prompt once for several choices', async () => {
    const one = await chat();
    const three = await chat({ n: 3, temperature: 1, seed: 7 });
    assert.equal(three.choices.length, 3);
    assert.equal(three.usage.prompt_tokens, one.usage.prompt_tokens);
    assert.ok(three.usage.completion_tokens <= 3 * 16);
    assert.ok(three.usage.completion_tokens >= 3);
  });

  it('gives an answer that follows a JSON schema, streamed and not', async () => {
    const format = {
      max_tokens: ENOUGH,
      response_format: { type: 'json_schema', json_schema: { name: 'c', schema: COLOURS } },
    };
    const text = (await chat(format)).choices[0].message.content;
    assert.ok(validColours(JSON.parse(text)), text);
    const streamed = await client.chat.completions
      .stream({ ...GREEDY, messages: QUESTION, ...format }).finalContent();
    assert.equal(streamed, text);
  });

  it('holds a conversation with a tool', async () => {
    const tools = [{ type: 'function', function: { name: LOOK, parameters: COLOURS } }];
    const ask = { tools, tool_choice: 'required', max_tokens: ENOUGH };
    const first = (await chat(ask)).choices[0];
    assert.equal(first.finish_reason, 'tool_calls');
    const [call] = first.message.tool_calls;
    assert.equal(call.function.name, LOOK);
    assert.ok(validColours(JSON.parse(call.function.arguments)), call.function.arguments);

    const streamed = await client.chat.completions
      .stream({ ...GREEDY, messages: QUESTION, ...ask }).finalMessage();
    assert.equal(streamed.tool_calls[0].function.name, LOOK);
    assert.equal(streamed.tool_calls[0].function.arguments, call.function.arguments);

    const second = await chat({
      tools,
      tool_choice: 'none',
      messages: [...QUESTION, first.message,
        { role: 'tool', tool_call_id: call.id, content: 'grey' }],
    });
    assert.ok(second.usage.prompt_tokens_details.cached_tokens > 0);
    assert.equal(second.choices[0].message.tool_calls, undefined);
  });

  it('asks for responses, streamed and not', async () => {
    const ask = {
      ...GREEDY, instructions: QUESTION[0].content, input: QUESTION[1].content,
      max_output_tokens: 16,
    };
    const plain = await client.responses.create(ask);
    assert.equal(plain.output_text, (await chat()).choices[0].message.content);
    let text = '';
    let last = null;
    for await (const event of await client.responses.create({ ...ask, stream: true })) {
      text += event.type === 'response.output_text.delta' ? event.delta : '';
      last = event;
    }
    assert.equal(text, plain.output_text);
    assert.match(last.type, /^response\.(completed|incomplete)$/);
    assert.equal(last.response.usage.input_tokens_details.cached_tokens,
                 last.response.usage.input_tokens - 1);
    const format = { type: 'json_schema', name: 'c', schema: COLOURS };
    const typed =
      await client.responses.parse({ ...ask, max_output_tokens: ENOUGH, text: { format } });
    assert.ok(validColours(typed.output_parsed), typed.output_text);
  });

  it('completes, lists models and reads errors', async () => {
    const completion =
      await client.completions.create({ ...GREEDY, prompt: 'The river', max_tokens: 4 });
    assert.equal(completion.usage.completion_tokens, 4);
    assert.equal((await client.models.list()).data[0].object, 'model');
    await assert.rejects(chat({ messages: [{ role: 'user', content: 'river '.repeat(9000) }] }),
                         { status: 400, code: 'context_length_exceeded', param: 'messages' });
    await assert.rejects(chat({ top_p: 'high' }), { status: 400, param: 'top_p' });
  });

  it('stops a stream in the middle and asks again', async () => {
    const stream = await chat({ stream: true, max_tokens: 2000, ignore_eos: true });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta?.content) break;
    }
    assert.equal((await chat()).object, 'chat.completion');
  });

  it('is told when the model makes no embeddings', async () => {
    await assert.rejects(client.embeddings.create({ model: 'm', input: 'river' }),
                         { status: 501, code: 'embeddings_not_supported' });
  });

  it('explains what was cached', async () => {
    await chat();
    const { response } = await chat().withResponse();
    const id = response.headers.get('x-request-id');
    const explained = await (await fetch(`${server.url}/v1/cache/explain/${id}`)).json();
    assert.equal(explained.prefix.reason, 'complete');
  });
});

describe('ai with @ai-sdk/openai-compatible', () => {
  let model;
  before(() => {
    model = createOpenAICompatible({
      name: 'skippy', baseURL: `${server.url}/v1`, includeUsage: true,
      supportsStructuredOutputs: true,
    })('skippy-demo');
  });
  const prompt = () => ({ model, messages: QUESTION, temperature: 0, maxOutputTokens: 16 });

  it('generates and streams the same text', async () => {
    const plain = await generateText(prompt());
    assert.ok(plain.usage.inputTokens > 0);
    const stream = streamText(prompt());
    let text = '';
    for await (const part of stream.textStream) text += part;
    assert.equal(text, plain.text);
    const usage = await stream.usage;
    assert.equal(usage.inputTokens, plain.usage.inputTokens);
    assert.equal(usage.cachedInputTokens, usage.inputTokens - 1);
  });

  it('calls a tool', async () => {
    const tools = { [LOOK]: tool({ inputSchema: jsonSchema(COLOURS) }) };
    const { toolCalls, finishReason } =
      await generateText({ ...prompt(), tools, toolChoice: 'required', maxOutputTokens: ENOUGH });
    assert.equal(finishReason, 'tool-calls');
    assert.equal(toolCalls[0].toolName, LOOK);
    assert.ok(validColours(toolCalls[0].input));
  });
});

describe('@anthropic-ai/sdk', () => {
  let client;
  before(() => {
    client = new Anthropic({ apiKey: 'none', baseURL: server.url, maxRetries: 0 });
  });
  const ask = (more) => ({
    ...GREEDY, system: QUESTION[0].content, messages: [QUESTION[1]], max_tokens: 16, ...more,
  });
  const promptTokens = (usage) =>
    usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;

  it('streams the message that a plain answer has', async () => {
    const plain = await client.messages.create(ask());
    const streamed = await client.messages.stream(ask()).finalMessage();
    assert.deepEqual(streamed.content, plain.content);
    assert.equal(streamed.stop_reason, plain.stop_reason);
    assert.equal(streamed.usage.output_tokens, plain.usage.output_tokens);
    const { input_tokens: counted } =
      await client.messages.countTokens({ ...ask(), max_tokens: undefined });
    assert.equal(promptTokens(plain.usage), counted);
    assert.equal(promptTokens(streamed.usage), counted);
    assert.equal(streamed.usage.cache_read_input_tokens, counted - 1);
  });

  it('holds a conversation with a tool', async () => {
    const tools = [{ name: LOOK, input_schema: COLOURS }];
    const calling = ask({ tools, tool_choice: { type: 'any' }, max_tokens: ENOUGH });
    const first = await client.messages.create(calling);
    assert.equal(first.stop_reason, 'tool_use');
    const call = first.content.find((block) => block.type === 'tool_use');
    assert.equal(call.name, LOOK);
    assert.ok(validColours(call.input), JSON.stringify(call));
    const streamed = await client.messages.stream(calling).finalMessage();
    assert.deepEqual(streamed.content.map(({ id, ...block }) => block),
                     first.content.map(({ id, ...block }) => block));
    const second = await client.messages.create(ask({
      tools,
      tool_choice: { type: 'none' },
      messages: [QUESTION[1], { role: 'assistant', content: first.content },
        { role: 'user', content: [
          { type: 'tool_result', tool_use_id: call.id, content: 'grey' }] }],
    }));
    assert.ok(second.usage.cache_read_input_tokens > 0);
  });

  it('reads errors', async () => {
    await assert.rejects(client.messages.create(ask({ top_p: 'high' })), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.error.error.type, 'invalid_request_error');
      return true;
    });
  });
});

describe('curl', () => {
  it('shows server-sent events as they come', async () => {
    const body = JSON.stringify({ ...GREEDY, messages: QUESTION, max_tokens: 4, stream: true });
    const { stdout } = await promisify(execFile)('curl', [
      '--silent', '--no-buffer', '--include', '--header', 'Content-Type: application/json',
      '--data', body, `${server.url}/v1/chat/completions`]);
    const [head, ...rest] = stdout.split('\r\n\r\n');
    assert.match(head, /trailer: x-skippy-cache/i);
    assert.match(head, /content-type: text\/event-stream/i);
    assert.doesNotMatch(head, /access-control/i);
    const events = rest.join('').split('\n\n').filter((event) => event !== '');
    assert.match(events.pop(), /^x-skippy-cache: l1=\d+;l2=\d+;l3=\d+;computed=\d+;/i);
    assert.ok(events.every((event) => event.startsWith('data: ')), stdout);
    assert.equal(events.at(-1), 'data: [DONE]');
    events.slice(0, -1).forEach((event) => JSON.parse(event.slice('data: '.length)));
  });
});

// The names of the fields of an interface in a package's types; header parameters are left out.
async function fieldsOf(file, name) {
  const text = await readFile(new URL(`node_modules/${file}`, import.meta.url), 'utf8');
  const begin = text.search(new RegExp(`export interface ${name}\\b`));
  const body = text.slice(begin, text.indexOf('\n}', begin));
  const outer = new RegExp(/^ {4}(?:\/\*\*([^]*?)\*\/\n {4})?(\w+)\??:/gm);
  return [...body.matchAll(outer)]
    .filter(([, comment]) => !comment?.includes('Header param'))
    .map(([, , field]) => field);
}

describe('docs/http_api.md', () => {
  const requests = [
    ['Chat completions', 'openai/resources/chat/completions/completions.d.ts',
      'ChatCompletionCreateParamsBase', 30],
    ['Completions', 'openai/resources/completions.d.ts', 'CompletionCreateParamsBase', 15],
    ['Responses', 'openai/resources/responses/responses.d.ts', 'ResponseCreateParamsBase', 25],
    ['Embeddings', 'openai/resources/embeddings.d.ts', 'EmbeddingCreateParams', 5],
    ['Messages', '@anthropic-ai/sdk/resources/messages/messages.d.ts',
      'MessageCreateParamsBase', 15],
  ];
  for (const [title, file, name, atLeast] of requests) {
    it(`says what becomes of every field of ${name}`, async () => {
      const page = await readFile(`${process.env.SKIPPY_DOCS}/http_api.md`, 'utf8');
      const section = page.split('\n## ').find((part) => part.startsWith(`${title}\n`));
      const fields = await fieldsOf(file, name);
      assert.ok(fields.length >= atLeast, `only ${fields}`);
      assert.deepEqual(fields.filter((field) => !section.includes(`| \`${field}\` |`)), []);
    });
  }
});
