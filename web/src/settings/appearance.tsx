import { momentOf } from "../state/dates";
import { prefer, preferences, type TextSize, type Theme } from "../state/preferences";
import { useStore } from "../state/store";

/** Languages offered for dates, in their own names. The list is short; the browser's language is the default. */
const LANGUAGES = ["en-GB", "en-US", "ar", "de", "es", "fr", "he", "hi", "it", "ja", "ko", "nl", "pl", "pt-BR", "ru", "sv", "tr", "uk", "zh-CN"];

export function Appearance() {
  const { theme, text, dates, wrapCode } = useStore(preferences, (one) => one);
  return (
    <section id="appearance" aria-labelledby="appearance-title">
      <h2 id="appearance-title">Appearance</h2>
      <div>
        <label className="setting">
          <span>Theme</span>
          <select aria-label="Theme" value={theme} onChange={(event) => prefer({ theme: event.target.value as Theme })}>
            <option value="system">Same as the system</option><option value="light">Light</option><option value="dark">Dark</option>
          </select>
        </label>
        <label className="setting">
          <span>Text size</span>
          <select aria-label="Text size" value={text} onChange={(event) => prefer({ text: event.target.value as TextSize })}>
            <option value="small">Small</option><option value="normal">Normal</option><option value="large">Large</option>
          </select>
        </label>
        <label className="setting">
          <span>Language of dates<small>{momentOf(new Date().toISOString())}</small></span>
          <select aria-label="Language of dates" value={dates} onChange={(event) => prefer({ dates: event.target.value })}>
            <option value="">Same as the browser</option>
            {LANGUAGES.map((tag) => <option key={tag} value={tag} lang={tag}>{languageName(tag)}</option>)}
          </select>
        </label>
        <label className="setting">
          <span>Wrap long lines of code</span>
          <input type="checkbox" checked={wrapCode} onChange={(event) => prefer({ wrapCode: event.target.checked })} />
        </label>
      </div>
    </section>
  );
}

const languageName = (tag: string) => new Intl.DisplayNames([tag], { type: "language" }).of(tag) ?? tag;
