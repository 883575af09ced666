import type { Conversation } from "../api/types";

export const titleOf = (conversation: Conversation) => conversation.title || conversation.preview || "New chat";
