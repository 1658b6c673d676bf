// The operator's token: stored for this tab, or on this device if requested. It never appears in
// an address.

const KEY = "waypost.operator";
const storages = () => [sessionStorage, localStorage];

export function readToken() {
  for (const storage of storages()) {
    const found = storage.getItem(KEY);
    if (found) return found;
  }
  return null;
}

export function keepToken(token, onThisDevice) {
  forgetToken();
  (onThisDevice ? localStorage : sessionStorage).setItem(KEY, token);
}

export function forgetToken() {
  for (const storage of storages()) storage.removeItem(KEY);
}
