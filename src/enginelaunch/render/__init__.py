"""A plan in the language of whoever starts it: one module a target.

from enginelaunch import Deployment, plan, render

scripts = render.shell(plan(Deployment.from_yaml("deployment.yaml")))
"""

from enginelaunch.render.shell import shell

__all__ = ["shell"]
