import { AppPage } from "../shell/app-page";

export function PersonPage() {
  return <AppPage title="Your memory"><p>…</p></AppPage>;
}
