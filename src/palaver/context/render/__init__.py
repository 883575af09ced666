"""From turns and memory to neutral messages, and from these to each provider's form. Pure."""

from __future__ import annotations

from palaver.context.render.anthropic import AnthropicPrompt as AnthropicPrompt
from palaver.context.render.anthropic import to_anthropic as to_anthropic
from palaver.context.render.blocks import Quotation as Quotation
from palaver.context.render.blocks import facts_lines as facts_lines
from palaver.context.render.blocks import memory_block as memory_block
from palaver.context.render.blocks import quote_file as quote_file
from palaver.context.render.blocks import quote_parts as quote_parts
from palaver.context.render.blocks import quote_recalled as quote_recalled
from palaver.context.render.blocks import quote_turn as quote_turn
from palaver.context.render.blocks import recalled_block as recalled_block
from palaver.context.render.blocks import summary_block as summary_block
from palaver.context.render.files import Span as Span
from palaver.context.render.files import file_block as file_block
from palaver.context.render.files import merge_spans as merge_spans
from palaver.context.render.files import not_shown as not_shown
from palaver.context.render.neutral import OPENING as OPENING
from palaver.context.render.neutral import Message as Message
from palaver.context.render.neutral import View as View
from palaver.context.render.neutral import attached_images as attached_images
from palaver.context.render.neutral import attached_note as attached_note
from palaver.context.render.neutral import error_mark as error_mark
from palaver.context.render.neutral import exceeds as exceeds
from palaver.context.render.neutral import file_label as file_label
from palaver.context.render.neutral import long_texts as long_texts
from palaver.context.render.neutral import message_marks as message_marks
from palaver.context.render.neutral import message_text as message_text
from palaver.context.render.neutral import messages_text as messages_text
from palaver.context.render.neutral import prepend as prepend
from palaver.context.render.neutral import shorten as shorten
from palaver.context.render.neutral import text_marks as text_marks
from palaver.context.render.neutral import turn_labels as turn_labels
from palaver.context.render.neutral import turn_messages as turn_messages
from palaver.context.render.neutral import turn_text as turn_text
from palaver.context.render.openai import to_openai as to_openai
from palaver.context.render.responses import to_responses as to_responses
from palaver.context.render.tool_ids import map_tool_calls as map_tool_calls
from palaver.context.render.tool_ids import original_names as original_names
from palaver.context.render.tool_ids import provider_name as provider_name
from palaver.core.quotes import fence as fence
from palaver.core.quotes import name_of as name_of
from palaver.core.quotes import one_line as one_line
from palaver.core.quotes import quote as quote
from palaver.core.quotes import quote_label as quote_label
from palaver.core.quotes import unquote as unquote
