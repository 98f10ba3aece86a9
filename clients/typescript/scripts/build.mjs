// Builds `dist`. Installed from a folder, npm brings no development dependencies: they are fetched here.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const compiler = join(root, "node_modules/typescript/bin/tsc");

function run(program, words) {
  const { status, error } = spawnSync(program, words, { cwd: root, stdio: "inherit" });
  if (status !== 0) {
    console.error(`${program} ${words.join(" ")} failed${error ? `: ${error.message}` : ""}`);
    process.exit(1);
  }
}

if (!existsSync(compiler)) {
  run("npm", ["ci", "--ignore-scripts", "--include=dev", "--no-audit", "--no-fund"]);
}
run(process.execPath, [compiler, "-p", "tsconfig.build.json"]);
