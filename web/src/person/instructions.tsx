import type { Settings } from "../api/types";
import { listPersonItems } from "../api/verbs";
import { AsyncContent } from "../shell/async-content";
import { useResource } from "../state/resource";
import { ItemSection } from "./items";

/** Custom instructions in the settings. They are part of what is remembered about the person. */
export function Instructions({ settings }: { settings: Settings }) {
  const isOn = (settings.person ?? "off") !== "off";
  const resource = useResource(async () => (isOn ? listPersonItems("approved") : []), [isOn]);
  if (!isOn) return null;
  return (
    <AsyncContent resource={resource} what="the instructions">
      {(items) => <ItemSection kind="instruction" items={items.filter((one) => one.kind === "instruction")} onChange={resource.again} />}
    </AsyncContent>
  );
}
