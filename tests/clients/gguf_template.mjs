// Writes a GGUF file anew with another chat template. Knows as much of the format as that takes.
const KEY = 'tokenizer.chat_template';
const STRING = 8;
const ARRAY = 9;
const SCALAR_BYTES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const ALIGNMENT = 32;

class Reader {
  constructor(file, at) {
    this.file = file;
    this.at = at;
  }

  u32() {
    this.at += 4;
    return this.file.readUInt32LE(this.at - 4);
  }

  u64() {
    this.at += 8;
    return Number(this.file.readBigUInt64LE(this.at - 8));
  }

  string() {
    const length = this.u64();
    this.at += length;
    return this.file.toString('utf8', this.at - length, this.at);
  }

  skipValue(type) {
    if (type === STRING) {
      this.string();
    } else if (type === ARRAY) {
      const element = this.u32();
      for (let left = this.u64(); left > 0; --left) this.skipValue(element);
    } else {
      this.at += SCALAR_BYTES[type];
    }
  }

  skipTensorInfo() {
    this.string();
    const dimensions = this.u32();
    this.at += 8 * dimensions + 4 + 8; // type, offset
  }
}

function stringBytes(text) {
  const bytes = Buffer.from(text, 'utf8');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([length, bytes]);
}

const aligned = (offset) => Math.ceil(offset / ALIGNMENT) * ALIGNMENT;

export function withChatTemplate(file, template) {
  const reader = new Reader(file, 8); // magic, version
  const tensors = reader.u64();
  const values = reader.u64();
  let replaced = null;
  for (let i = 0; i < values; ++i) {
    const key = reader.string();
    const type = reader.u32();
    const begin = reader.at;
    reader.skipValue(type);
    if (key === KEY) replaced = [begin, reader.at];
  }
  if (replaced === null) throw new Error(`the model has no ${KEY}`);
  for (let i = 0; i < tensors; ++i) reader.skipTensorInfo();
  const head = Buffer.concat([
    file.subarray(0, replaced[0]), stringBytes(template), file.subarray(replaced[1], reader.at)]);
  const padding = Buffer.alloc(aligned(head.length) - head.length);
  return Buffer.concat([head, padding, file.subarray(aligned(reader.at))]);
}
