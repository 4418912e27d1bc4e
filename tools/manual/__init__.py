"""The pages of the manual, made from the command tree, the layouts and the registry of findings.

``make docs`` writes them to ``man/``; ``rmqtool man`` shows them. Texts without another source are here: ``examples``
has the commands to run, ``texts`` the words around them.
"""
