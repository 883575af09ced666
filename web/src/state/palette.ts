/** Whether the palette is open. */

import { Store } from "./store";

export const palette = new Store<boolean>(false);
export const openPalette = () => palette.set(true);
export const closePalette = () => palette.set(false);
