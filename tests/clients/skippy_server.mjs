// The real server as a child process. SKIPPY_BINARY and SKIPPY_MODELS name what is tested.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { withChatTemplate } from './gguf_template.mjs';

const BINARY = process.env.SKIPPY_BINARY;
const MODELS = process.env.SKIPPY_MODELS;
const WAIT_MS = 120_000; // on a busy machine

// The demo model knows no tools; its template is exchanged for one that writes and reads calls.
const TOOL_TEMPLATE = `{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'Tools are called as <function=NAME>OBJECT</function>.\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
{{- '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<function=' + call.function.name + '>' }}{{- call.function.arguments | tojson }}
{{- '</function>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`;

export class Server {
  static async start() {
    const server = new Server();
    server.directory = mkdtempSync(join(tmpdir(), `skippy-clients-${process.pid}-`));
    const model = join(server.directory, 'tools.gguf');
    writeFileSync(
      model, withChatTemplate(readFileSync(join(MODELS, 'skippy-demo-f16.gguf')), TOOL_TEMPLATE));
    server.process = spawn(
      BINARY, ['serve', '-m', model, '--port', '0', '--management-port', 'off'],
      { stdio: ['ignore', 'pipe', 'pipe'] });
    server.log = '';
    await server.waitForReady();
    return server;
  }

  waitForReady() {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`not ready:\n${this.log}`)), WAIT_MS);
      const read = (data) => {
        this.log += data;
        const port = /listening on http:\/\/\S*:(\d+)\n/.exec(this.log);
        if (port && /\bready\n/.test(this.log)) {
          clearTimeout(timer);
          this.url = `http://127.0.0.1:${port[1]}`;
          resolve();
        }
      };
      this.process.stdout.on('data', read);
      this.process.stderr.on('data', read);
      this.process.on('exit', (code) => {
        clearTimeout(timer);
        reject(new Error(`ended with status ${code}:\n${this.log}`));
      });
    });
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.on('exit', resolve));
    this.process.kill('SIGTERM');
    const status = await ended;
    rmSync(this.directory, { recursive: true });
    return status;
  }
}
