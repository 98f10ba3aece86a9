// Names: snake case on the wire, camel case here. Keys of maps are left alone.

/** Fields whose keys are names of somebody else: of limits, states and variables. */
const MAPS = new Set(["limits", "totals", "env", "env_base64", "envBase64"]);

/** Any JSON object. */
export type Json = Record<string, unknown>;

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) {
    return value.map((item) => renamed(item, rename));
  }
  if (!isObject(value)) {
    return value;
  }
  const pairs = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(
    pairs.map(([name, item]) => [rename(name), MAPS.has(name) ? item : renamed(item, rename)]),
  );
}

/** As the daemon names it. What is undefined is left out. */
export function toWire(value: object): Json {
  return renamed(value, (name) =>
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  ) as Json;
}

/** As it is named here. */
export function fromWire(value: unknown): unknown {
  return renamed(value, (name) =>
    name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase()),
  );
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
