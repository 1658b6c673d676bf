// Server-sent events by fetch, so that the token can be in a header. While the relay is unreachable,
// retries back off; a rejected token ends the stream.

import { Unreachable, ApiError, ask } from "./api.js";

const SILENCE_MS = 8000; // there is an event every second; after this silence the relay counts as unreachable
const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15000];

export class Stream {
  /** `onEvent(name, value)` for each event; `onState(state)` with "live", "away" or "over". */
  constructor(path, { onEvent, onState = () => {} }) {
    this.path = path;
    this.onEvent = onEvent;
    this.onState = onState;
    this.failures = 0;
    this.stopped = false;
    this.retryAt = 0;
    this.#run();
  }

  stop() {
    this.stopped = true;
    this.controller?.abort();
    this.wake?.();
  }

  /** Reconnect at once. */
  retryNow() {
    this.failures = 0;
    this.wake?.();
  }

  async #run() {
    while (!this.stopped) {
      try {
        await this.#read();
      } catch (problem) {
        if (this.stopped) return;
        if (problem instanceof ApiError && problem.isTokenError) return this.onState("over");
      }
      if (this.stopped) return;
      await this.#pause();
    }
  }

  async #pause() {
    const wait = WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.failures += 1;
    this.retryAt = Date.now() + wait;
    this.onState("away");
    await new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, wait);
    });
  }

  async #read() {
    this.controller = new AbortController();
    const watch = () => setTimeout(() => this.controller.abort(), SILENCE_MS);
    let watchdog = watch();
    try {
      const response = await ask(this.path, { signal: this.controller.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Unreachable("the relay closed the stream");
        clearTimeout(watchdog);
        watchdog = watch();
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) this.#emit(frame);
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  #emit(frame) {
    const [event, data] = frame.split("\n", 2);
    if (!event?.startsWith("event: ") || !data?.startsWith("data: ")) return;
    this.failures = 0;
    this.onState("live");
    this.onEvent(event.slice(7), JSON.parse(data.slice(6)));
  }
}
