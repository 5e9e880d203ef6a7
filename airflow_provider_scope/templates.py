"""How the templates in an operator's arguments are rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator
from airflow.sdk.definitions.context import render_template_to_string

from airflow_provider_scope.validation import is_deferred

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class KeepsPlainTexts(BaseOperator):
    """Base of operators: a text in which nothing is to be rendered stays as it is.

    With ``render_template_as_native_obj=True``, Jinja evaluates every text, and a ``nullValue`` of ``"0"`` or
    ``"None"`` becomes a number or nothing. With or without it, Jinja drops a line break at the end, which
    ``lineSep`` consists of. A number whose own text is not what was rendered, such as ``1.10``, stays text.

    It is no mixin: where one stands before ``BaseOperator`` and a class has no ``__init__``, Airflow 3.3
    takes the defaults of ``partial()`` from ``BaseOperator``'s signature, and mapped tasks have no inlets.
    """

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render a text, and what lies inside lists and dicts."""
        is_plain = isinstance(content, str) and not is_deferred(content)
        if is_plain and not content.endswith(tuple(self.template_ext)):
            return content
        return super().render_template(content, context, jinja_env, seen_oids)

    def _render(self, template: jinja2.Template, context: Context, dag: Any = None) -> Any:
        value = super()._render(template, context, dag)
        if type(value) not in (int, float):
            return value
        try:
            text = render_template_to_string(template, context)
        except TypeError:  # the value of the expression itself is a number
            return value
        return value if str(value) == text else text
