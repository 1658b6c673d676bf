// The current statistics of the relay, from one stream for all views.

import { Stream } from "./stream.js";

const SAMPLES_MAX = 600;

class Live {
  samples = [];
  standing = null;
  breakers = { states: [], total: 0, moves: [], cooldown_ms: 0 };
  state = "connecting";
  awaySince = 0; // ms by the reader's clock
  #listeners = new Set();
  #pending = false;
  #offsetUs = null;

  start() {
    this.stop();
    this.state = "connecting";
    this.stream = new Stream("/v1/live", {
      onEvent: (name, value) => this.#take(name, value),
      onState: (state) => this.#turn(state),
    });
  }

  stop() {
    this.stream?.stop();
    this.stream = null;
    this.samples = [];
    this.standing = null;
    this.awaySince = 0;
  }

  /** Call `act` after changes, at most once per frame. Returns a function that unsubscribes. */
  listen(act) {
    this.#listeners.add(act);
    return () => this.#listeners.delete(act);
  }

  /** The relay's time now, in µs. */
  nowUs() {
    return Date.now() * 1000 + (this.#offsetUs ?? 0);
  }

  get last() {
    return this.samples.at(-1) ?? null;
  }

  #take(name, value) {
    if (name === "history") this.samples = value;
    else if (name === "sample") {
      this.samples.push(value);
      if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    } else if (name === "standing") {
      this.standing = value;
      this.#offsetUs = value.at_us - Date.now() * 1000;
    } else if (name === "breakers") this.breakers = value;
    this.#notify();
  }

  #turn(state) {
    if (state === this.state) {
      if (state === "away") this.#notify();
      return;
    }
    this.state = state;
    this.awaySince = state === "away" ? this.awaySince || Date.now() : 0;
    this.#notify();
  }

  #notify() {
    if (this.#pending) return;
    this.#pending = true;
    // A hidden page draws no frames; its listeners are called a little later.
    const soon = document.hidden ? (act) => setTimeout(act, 200) : requestAnimationFrame;
    soon(() => {
      this.#pending = false;
      for (const act of [...this.#listeners]) act();
    });
  }
}

export const live = new Live();
