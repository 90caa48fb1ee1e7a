// Perfetto's trace processor as a filter: reads RPC messages from standard input, and writes the answers to
// standard output. The processor is WebAssembly for a browser's worker; this file simulates a browser.
//     node processor.js FOLDER     the folder of engine_bundle.js and trace_processor.wasm
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const exit = process.exit.bind(process);

function write(bytes) {
  for (let done = 0; done < bytes.length;) {
    done += fs.writeSync(1, bytes, done);
  }
}

globalThis.self = globalThis;
globalThis.location = {href: `file://${folder}/`, protocol: "file:", host: ""};
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {  // reads files next to the bundle
  open(method, name) { this.response = fs.readFileSync(path.join(folder, path.basename(name))); }
  send() {}
};
console.log = console.error;
globalThis.process = undefined;  // hides Node.js from the bundle
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));

const port = {postMessage: write};
globalThis.onmessage({data: port});
setImmediate(() => {  // the module is ready after the first turn of the event loop
  const chunk = Buffer.alloc(1 << 20);
  for (let size; (size = fs.readSync(0, chunk)) > 0;) {
    port.onmessage({data: new Uint8Array(chunk.subarray(0, size))});
  }
  exit(0);
});
