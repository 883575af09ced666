import { type FormEvent, useState } from "react";
import { signIn } from "../state/session";

/** Sign in with a key or a JWT. It is sent as a header and never put into a URL. */
export function SignIn({ message }: { message: string }) {
  const [value, setValue] = useState("");
  const [onDevice, setOnDevice] = useState(false);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    await signIn(value, onDevice);
    setBusy(false);
  };
  return (
    <main className="whole-page">
      <form className="sign-in" onSubmit={(event) => void submit(event)}>
        <img src="/favicon.svg" alt="" width="44" height="44" />
        <h1>Sign in to Palaver</h1>
        <label htmlFor="key">Access key</label>
        <input
          id="key" type="password" autoComplete="current-password" autoFocus required spellCheck={false} value={value}
          onChange={(event) => setValue(event.target.value)} aria-describedby="key-help" aria-invalid={Boolean(message)}
        />
        {message && <p className="form-problem" role="alert">{message}</p>}
        <label className="check">
          <input type="checkbox" checked={onDevice} onChange={(event) => setOnDevice(event.target.checked)} />
          Stay signed in on this device
        </label>
        <button type="submit" className="button is-main" disabled={busy || !value.trim()}>{busy ? "Signing in…" : "Sign in"}</button>
        <p id="key-help" className="hint">
          A key from <code>palaver keys create NAME</code>, or a JSON Web Token that this server accepts.
        </p>
      </form>
    </main>
  );
}
