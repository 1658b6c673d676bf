// The operator's token: kept for this tab, or on this device if that is asked for. It is never
// put into an address.

const KEY = "waypost.operator";
const places = () => [sessionStorage, localStorage];

export function readToken() {
  for (const place of places()) {
    const found = place.getItem(KEY);
    if (found) return found;
  }
  return null;
}

export function keepToken(token, onThisDevice) {
  forgetToken();
  (onThisDevice ? localStorage : sessionStorage).setItem(KEY, token);
}

export function forgetToken() {
  for (const place of places()) place.removeItem(KEY);
}
